#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>

#include <optional>

namespace fencegate {

/// What is kept under an idempotency key. Empty: nothing.
struct found_outcome {
    found_outcome() = default;  // so that it is not made of a failure by the way
    std::optional<result<write_outcome>> value;
};

}  // namespace fencegate
