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

/// The header Idempotency-Key; empty where none was sent. Faults: not 1 to 64 visible ASCII characters.
std::string read_idempotency_key(const http::request& r, http::fault_list& faults);

/// What the outcome of this request is kept under. The fingerprint is of the method, the address with its query, the
/// header Prefer and the body.
///
/// In: `body` what the request asks for, byte by byte: under which lease and until when is no part of it.
idempotency make_idempotency(std::string key, const http::request& r, std::string_view body,
                             std::chrono::milliseconds keep_for);

/// The keys of the calls that are under way at this gateway, so that a repeat is told so before it does anything. What
/// several gateways do with one key is decided in PostgreSQL (fencing.claim_keys).
///
/// Threads: safe.
class running_keys {
  public:
    /// Held while the call runs; empty if one with this key is running already.
    std::shared_ptr<void> enter(const std::string& principal, const std::string& key);

  private:
    std::mutex mutex_;
    std::unordered_set<std::string> keys_;
};

}  // namespace fencegate::api
