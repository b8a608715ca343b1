#pragma once

#include "fuzz.hpp"

#include <gateway/domain/failure.hpp>

namespace fencegate::fuzz {

/// Checks what each refusal of a request's text says: which fields are faulty and why, or which cell was named.
inline void check_refusal(const failure& why) {
    if (why.code == errc::misdirected_request)
        return require(why.facts.contains("named_cell"), "a refusal of another cell names it");
    require(why.code == errc::invalid_request, "a faulty request is an invalid request");
    require(!why.errors.empty() && why.errors.size() <= field_errors_max, "the number of faults is bounded");
    for (const auto& fault : why.errors)
        require(!fault.detail.empty(), "a fault says what is wrong");
}

}  // namespace fencegate::fuzz
