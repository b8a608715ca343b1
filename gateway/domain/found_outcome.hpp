#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>

#include <optional>

namespace fencegate {

/// The outcome kept under an idempotency key; `value` is empty where none is kept.
struct found_outcome {
    found_outcome() = default;  // no aggregate: a failure must not convert to a found_outcome implicitly
    std::optional<result<write_outcome>> value;
};

}  // namespace fencegate
