#pragma once

#include <lockcore/result.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockcore {

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
