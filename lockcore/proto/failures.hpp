#pragma once

#include <lockcore/result.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockcore {

/// The detail for majority_round::verdict::uncounted.
inline constexpr const char* uncounted_detail =
    "A majority of the nodes has the lease, but too many of them were "
    "restarted since it was last granted or renewed by "
    "this gateway. The gateway that did so last can renew it.";

inline failure make_failure(errc code, std::string detail) {
    failure f;
    f.code = code;
    f.detail = std::move(detail);
    return f;
}

inline failure make_no_quorum(std::string detail, std::vector<node_answer> answers) {
    failure f = make_failure(errc::no_quorum, std::move(detail));
    f.answers = std::move(answers);
    return f;
}

}  // namespace lockcore
