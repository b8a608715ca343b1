#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/config.hpp>
#include <lockcore/lock_manager.hpp>

#include <boost/json/value.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// A guarded write as its caller requests it, on any of the routes for writes.
struct write_call {
    std::string lease_id{};  ///< Empty: there is an own_lease, or the headers have a token of another issuer.
    /// In place of lease_id: a lease that is acquired for this write alone, and released when it has ended.
    std::optional<lockcore::acquire_request> own_lease{};
    std::vector<operation> operations{};
    bool return_rows = false;
    std::vector<selected_column> select{};  ///< Columns of the returned rows. Empty: every exposed column.
    row_format format = row_format::json;   ///< Of the returned rows.
    std::string accepted_form{};     ///< What Accept asks for beside JSON; the fingerprint covers it. Empty: nothing.
    bool require_live = false;       ///< Whether to check first that a majority of the nodes holds the lease.
    bool then_release = false;       ///< Whether to seal the token with the write and then release the lease.
    std::string idempotency_key{};   ///< Empty: none.
    std::string fingerprint_text{};  ///< The body as the key's fingerprint covers it (fingerprint_text_of).
};

/// The result of the release after a write.
struct release_report {
    bool released = false;         ///< False: holds are left, or too few nodes answered and the lease expires.
    std::uint32_t holds_left = 0;  ///< For a re-entrant lease; 0 also if unknown.
};

/// The result of an applied write. If `outcome.replayed`, an earlier call applied it.
struct write_report {
    write_outcome outcome{};
    bool own_lease = false;
    std::optional<release_report> release{};  ///< Empty: no release was requested.
};

/// Returns the operator with this name in the conditions of bodies and queries; empty if there is none.
std::optional<comparison_operator> find_operator(std::string_view name);

/// Reads the operations of a write and moves their values out of `given`.
///
/// Errors: faults are added to `faults` with their JSON pointers; the operations are then unusable.
std::vector<operation> read_operations(boost::json::value& given, const std::string& pointer, http::fault_list& faults);

/// Moves the values out of an object whose keys are the names of columns or arguments.
///
/// Faults: more than 1,600 names, an empty one, one of more than name_bytes_max bytes; then nothing is taken.
std::vector<assignment> take_assignments(boost::json::object& given, const std::string& pointer,
                                         http::fault_list& faults);

/// Parses the body and the headers of POST /v1/writes.
///
/// Errors: errc::invalid_request with every fault · errc::unsupported_media_type.
result<write_call> parse_write_body(const http::request& r, const lockcore::config& protocol);

/// Returns the body of a 200 of POST /v1/writes, with the JSON of rows and values as PostgreSQL made it.
std::string render_write(const write_report& report);

}  // namespace fencegate::api
