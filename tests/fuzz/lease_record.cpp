// What a hostile node may answer to the commands of leases: the items of a script's reply, and leases as a node stores them.
// The first byte of the input selects the command.
#include "fuzz.hpp"

#include <proto/command.hpp>
#include <proto/lease_record.hpp>

#include <string>

namespace fencegate::fuzz {
namespace {

using namespace lockcore;

void check_record(std::string_view text) {
    auto record = lease_record::parse(text);
    if (!record) return;
    const std::string formatted = record->format();
    const auto again = lease_record::parse(formatted);
    require(again.has_value(), "a lease that was read can be written and read again");
    require(again->format() == formatted, "a lease that was written by this version is read as it was");
    require(again->token == record->token && again->stamp == record->stamp, "a lease keeps its token and its stamp");
    record->merge(*again);
    require(record->holds.count() <= text.size() / hold_id::size, "a lease has no more holds than its text");
    idempotency_digest wanted;
    wanted.text = std::string(text.substr(0, idempotency_digest::size));
    wanted.text.resize(idempotency_digest::size, '0');
    wanted.find_in(record->keys);
}

}  // namespace

void run_input(std::string_view input) {
    if (input.empty()) return;
    const auto kind = static_cast<command_kind>(static_cast<unsigned char>(input.front()) % command_kinds);
    input.remove_prefix(1);
    const node_reply reply = parse_reply(kind, input);
    require(reply.status == reply_status::error || static_cast<unsigned>(reply.status) < script_statuses,
            "a reply has a status that scripts have");
    require(reply.text.size() <= input.size(), "a reply has no more text than was sent");
    check_record(reply.text);
    check_record(input);
    hold_view holds;
    holds.add(reply.text);
    hold_view again;
    again.add(holds.text());
    require(again.text() == holds.text(), "holds that were written are read as they were");
}

}  // namespace fencegate::fuzz
