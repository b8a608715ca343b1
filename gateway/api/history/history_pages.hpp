#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <cstddef>
#include <optional>

// Pages and exports of the history, of changes and of digests.

namespace fencegate::api {

/// Adds a read of the history as an event where audit.record_reads is set. Rows: those of a page.
///
/// Errors: errc::storage_unavailable without a place in the buffer: what is not recorded is not read.
result<void> record_read(const history_services& services, const http::request& r,
                         std::optional<std::size_t> rows = std::nullopt);

}  // namespace fencegate::api
