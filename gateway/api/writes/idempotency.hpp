#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/message.hpp>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace fencegate::audit {
class event_sink;
}

namespace fencegate::api {

/// Returns the header Idempotency-Key; empty if it is absent. Faults: not 1 to 64 visible ASCII characters.
std::string read_idempotency_key(const http::request& r, http::fault_list& faults);

/// Returns the values of a body as text that does not depend on white space and on the order of members. Numbers keep
/// their digits, and items of arrays their order.
std::string fingerprint_text_of(const boost::json::object& body);
std::string fingerprint_text_of(const boost::json::value& body);

/// Returns the key under which the outcome of a request is kept. Its fingerprint covers the method, the path, the
/// parameters of the query in any order, the header Prefer and the body.
///
/// In: `body`: the fingerprint text of what a repeat has to have too; who holds the lease, and for how long, is no part
///     of it.
///     `accepted_form`: what Accept asks for beside JSON; empty: nothing.
idempotency_key make_idempotency_key(std::string key, const http::request& r, std::string_view body,
                                     std::string_view accepted_form, std::chrono::milliseconds keep_for);

/// Records that a call on `resources` got the kept outcome of an earlier one: `outcome`, or if that is null `refusal`.
void record_replay(audit::event_sink& events, actor initiator, const std::vector<lockcore::resource_name>& resources,
                   const write_outcome* outcome, const failure* refusal);

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

/// Returns the failure of a write with its write_id; without it if the key belongs to another call, because then the
/// write was not made.
failure add_write_id(failure f, const std::string& write_id);

}  // namespace fencegate::api
