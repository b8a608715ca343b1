#pragma once

#include <lockcore/events.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/nodes.hpp>
#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/node_request.hpp>

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lockcore {

/// The time of a step. The driver reads the three clocks once, before the step and so before the first request that the
/// step sends (docs/protocol.md R6).
struct step_time {
    monotonic_time monotonic;  ///< For timeouts and back-off.
    validity_time validity;    ///< For the validity of leases.
    wall_time wall;            ///< For people and for the history.
};

/// Identifies a call of a caller until it is answered; chosen by the driver, different for each call.
enum class call_id : std::uint64_t {};
/// Counts the connections to one node; what arrives from an older connection is ignored (docs/protocol.md R9).
enum class connection_number : std::uint64_t {};
/// Identifies a script call on a connection, or a request to the register, until it is answered.
enum class request_number : std::uint64_t {};

/// What a core asks of the register of epochs.
namespace register_request {
struct find {
    std::string node_name;
};
struct draw {
    epoch_request request;
};
struct note_unsynced {
    std::string node_name;
};
using any = std::variant<find, draw, note_unsynced>;
}  // namespace register_request
/// std::monostate answers note_unsynced.
using register_response = std::variant<failure, node_record, drawn_epoch, std::monostate>;

/// Some of the resources that have a lease on a node: the reply to LIST.
struct list_part {
    struct name {
        std::string text;
        bool without_ttl = false;  ///< The lease key has no ttl.
    };
    std::string cursor;  ///< The cursor of the next part; "0": this is the last part.
    std::vector<name> names;
};

/// What was found of a resource.
struct found_lease {
    std::optional<live_lease> lease;  ///< The one that has it exclusively, or the one that was looked for.
    std::vector<nonce> sharing;       ///< The attempts of those that share it, on a majority by all answers; sorted.
};

/// What happens to a core: calls of callers, answers, and time.
namespace input {
// Calls. Each is answered once, by action::answer with the result that is named here.
struct acquire {  ///< result<lease>
    call_id call{};
    acquire_request request;
};
struct renew {  ///< result<lease>
    call_id call{};
    lease_claims claims;
    milliseconds ttl{};
    std::string origin;
};
struct inspect {  ///< result<lease>
    call_id call{};
    lease_claims claims;
};
/// Cancels the acquire call with the holder, resources and idempotency key of `request`, wherever it is, and releases
/// its hold. `request.wait`: how long that call may still wait.
struct cancel_request {  ///< result<release_outcome>
    call_id call{};
    acquire_request request;
};
struct release {  ///< result<release_outcome>
    call_id call{};
    lease_claims claims;
    std::string origin;
};
struct revoke {  ///< result<release_outcome>
    call_id call{};
    lease_claims claims;
    holder actor;
    std::string reason, origin;
};
struct close_to_new_holds {  ///< result<close_outcome>
    call_id call{};
    lease_claims claims;
};
struct reopen {  ///< Not answered.
    lease_claims claims;
    close_outcome closed;
};
struct keep {  ///< result<keep_step>
    call_id call{};
    kept_lease kept;
    std::string origin;
};
struct watch {  ///< result<watch_step>
    call_id call{};
    lease_claims claims;
    milliseconds longest{};
};
struct find_lease {  ///< result<found_lease>
    call_id call{};
    resource_name resource;
    std::optional<node_index> only;  ///< Looks on this node alone.
    std::optional<nonce> sharing{};  ///< Looks for the lease of this attempt, which shares the resource.
};
/// See docs/protocol.md, STORAGE GENERATION.
struct announce_floor {  ///< result<floor_announcement>
    call_id call{};
    storage_floor floor;
};
/// The hints of ACQUIRE are above this epoch from now on. Not answered.
struct raise_hints {
    epoch floor{};
};
struct list {  ///< result<list_part>
    call_id call{};
    node_index node{};
    std::string cursor, pattern;
};
/// The caller of this call no longer waits for it. A call that is answered already is not affected.
struct cancel {
    call_id call{};
};
/// No new leases are granted from now on.
struct refuse_new_leases {};

// Answers.
struct connected {
    node_index node{};
    connection_number connection{};
};
struct disconnected {
    node_index node{};
    connection_number connection{};
    std::string reason;
    bool refused = false;  ///< The node refused the credentials, or the password can't be read.
};
/// The answer to action::send_batch: a reply for each command, or the error of the whole script call.
struct batch_answered {
    node_index node{};
    connection_number connection{};
    request_number batch{};
    std::vector<node_reply> replies;
    std::string error;  ///< Empty: there are replies.
};
/// The answer to action::ask_node. Those of one connection arrive in the order of the requests.
struct node_answered {
    node_index node{};
    connection_number connection{};
    node_response::any response;
};
struct register_answered {
    request_number request{};
    register_response response;
};
/// A node published that a lease ended.
struct lease_ended {
    node_index node{};
    nonce ended;
    std::string resource;
    bool revoked = false;  ///< With all its holds; not released by its holder.
};

struct start {};
struct stop {};
/// core::tick_length has passed, in which this process could read answers.
struct tick {};
/// The time that core::next_timer() returned has come.
struct timer {};
/// The driver has passed in all that happened at once: decisions are acted upon, and queued commands are sent.
struct flush {};
}  // namespace input

using core_input = std::variant<input::acquire, input::renew, input::inspect, input::cancel_request, input::release,
                                input::revoke, input::close_to_new_holds, input::reopen, input::keep, input::watch,
                                input::find_lease, input::announce_floor, input::raise_hints, input::list,
                                input::cancel, input::refuse_new_leases, input::connected, input::disconnected,
                                input::batch_answered, input::node_answered, input::register_answered,
                                input::lease_ended, input::start, input::stop, input::tick, input::timer, input::flush>;

using call_result =
    std::variant<result<lease>, result<release_outcome>, result<close_outcome>, result<keep_step>, result<watch_step>,
                 result<found_lease>, result<floor_announcement>, result<list_part>>;

/// What a driver has to do after a step, in this order.
namespace action {
/// Opens a connection; input::connected or input::disconnected follows.
struct open_connection {
    node_index node{};
    connection_number connection{};
};
/// Closes the connection; nothing follows.
struct close_connection {
    node_index node{};
};
/// Sends commands of one kind in one script call; input::batch_answered follows, or input::disconnected.
struct send_batch {
    node_index node{};
    connection_number connection{};
    request_number batch{};
    command_kind kind{};
    std::vector<batch_item> items;
    std::string run_id;
    bool with_source = false;  ///< Sends the text of the script and not its SHA-1.
};
/// input::node_answered follows, or input::disconnected.
struct ask_node {
    node_index node{};
    connection_number connection{};
    node_request::any request;
};
/// input::register_answered follows.
struct ask_register {
    request_number request{};
    register_request::any asked;
};
struct answer {
    call_id call{};
    call_result result;
};
/// Something that the history records.
struct record {
    event what;
};
/// The state of a node has changed (core::status).
struct node_changed {
    node_index node{};
};
}  // namespace action

using core_action =
    std::variant<action::open_connection, action::close_connection, action::send_batch, action::ask_node,
                 action::ask_register, action::answer, action::record, action::node_changed>;

}  // namespace lockcore
