#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/message.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

namespace fencegate::api {

/// Returns the header Idempotency-Key; empty if it is absent. Faults: not 1 to 64 visible ASCII characters.
std::string read_idempotency_key(const http::request& r, http::fault_list& faults);

/// Returns the key under which the outcome of a request is kept. Its fingerprint covers the method, the path with its
/// query, the header Prefer and the body.
///
/// In: `body`: the part of the body that has to be equal byte by byte in a repeat; lease and times are not part of it.
///     `accepted_form`: what Accept asks for beside JSON; empty: nothing.
idempotency_key make_idempotency_key(std::string key, const http::request& r, std::string_view body,
                                     std::string_view accepted_form, std::chrono::milliseconds keep_for);

/// The idempotency keys of the calls that are under way at this gateway, so that a repeat is refused before it does
/// anything. PostgreSQL decides between calls at several gateways (fencing.claim_keys).
///
/// Threads: any.
class running_keys {
  public:
    /// Enters a key until the result is destroyed. Out: null if a call with this key is under way.
    std::shared_ptr<void> enter(const std::string& principal, const std::string& key);

  private:
    std::mutex mutex_;
    std::unordered_set<std::string> keys_;
};

}  // namespace fencegate::api
