#include "paper/node_client.hpp"

#include <proto/lease_record.hpp>
#include <redis/script_set.hpp>

#include <hiredis/hiredis.h>

#include <algorithm>
#include <stdexcept>

namespace fencegate::testing {
namespace {

using namespace lockcore;

using reply_ptr = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

std::string text(const redisReply& r) {
    if (r.type == REDIS_REPLY_INTEGER) return std::to_string(r.integer);
    if (r.type == REDIS_REPLY_ARRAY) {
        std::string all;
        for (std::size_t i = 0; i < r.elements; ++i)
            all += (i == 0 ? "" : " ") + text(*r.element[i]);
        return all;
    }
    return r.str ? std::string(r.str, static_cast<std::size_t>(r.len)) : std::string{};
}

reply_ptr next_reply(redisContext& c) {
    void* out = nullptr;
    if (redisGetReply(&c, &out) != REDIS_OK) throw std::runtime_error(std::string("no answer: ") + c.errstr);
    return {static_cast<redisReply*>(out), &freeReplyObject};
}

class fixed_call final : public reply_target {
  public:
    explicit fixed_call(lease_call call) : call_(std::move(call)) {}
    const lease_call& call() const override { return call_; }
    void on_reply(node_index, command_kind, fencing_token, const node_reply&) override {}

  private:
    lease_call call_;
};

}  // namespace

void node_client::connect() {
    connection_ = std::shared_ptr<redisContext>(redisConnect("127.0.0.1", port_), &redisFree);
    if (!connection_ || connection_->err) throw std::runtime_error("can't connect to the node");
    const std::string info = command({"INFO", "server"});
    const std::size_t at = info.find("run_id:") + 7;
    run_id_ = info.substr(at, info.find_first_of("\r\n", at) - at);
}

namespace {

reply_ptr run_command(redisContext& connection, const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& w : words) {
        texts.push_back(w.data());
        sizes.push_back(w.size());
    }
    redisAppendCommandArgv(&connection, static_cast<int>(texts.size()), texts.data(), sizes.data());
    return next_reply(connection);
}

}  // namespace

std::string node_client::command(const std::vector<std::string>& words) {
    return text(*run_command(*connection_, words));
}

std::vector<std::string> node_client::command_list(const std::vector<std::string>& words) {
    const reply_ptr reply = run_command(*connection_, words);
    if (reply->type != REDIS_REPLY_ARRAY) return {text(*reply)};
    std::vector<std::string> out;
    for (std::size_t i = 0; i < reply->elements; ++i)
        out.push_back(text(*reply->element[i]));
    return out;
}

std::string node_client::next_message() {
    return text(*next_reply(*connection_)->element[2]);
}

std::string node_client::claim() {
    command({"HSETNX", "fg:node", "claim", "claim-of-the-test-" + run_id_.substr(0, 8)});
    return command({"HGET", "fg:node", "claim"});
}

std::string node_client::readmit(const std::string& run_id, std::uint64_t epoch, const std::string& claim) {
    return readmit(run_id, epoch, claim, marks());
}

std::string node_client::readmit(const std::string& run_id, std::uint64_t epoch, const std::string& claim,
                                 const std::string& marks, const std::string& syncs) {
    return command({"EVAL", redis::readmit_script().text, "1", "fg:node", run_id,
                    std::to_string(epoch * tokens_per_epoch), claim, marks, syncs});
}

std::string node_client::mark(const std::string& digits) {
    return command({"EVAL", redis::mark_script().text, "1", "fg:node", digits});
}

std::vector<std::string> node_client::read_leases(const std::string& base, const std::string& cursor, std::size_t page,
                                                  const std::string& run_id) {
    return command_list({"EVAL", redis::read_leases_script().text, "1", "fg:node", run_id.empty() ? run_id_ : run_id,
                         base, cursor, std::to_string(page)});
}

std::string node_client::install(const std::string& run_id, const std::string& mark,
                                 const std::vector<installed_lease>& page) {
    std::vector<std::string> words{"EVAL", redis::install_script().text, std::to_string(1 + page.size()), "fg:node"};
    for (const installed_lease& l : page)
        words.push_back("fg:lease:" + l.resource);
    words.insert(words.end(), {run_id, mark});
    for (const installed_lease& l : page)
        words.insert(words.end(), {l.value, std::to_string(l.remaining_ms)});
    return command(words);
}

std::string node_client::readmit_marked(std::uint64_t epoch, const std::string& mark) {
    return command({"EVAL", redis::readmit_script().text, "1", "fg:node", run_id_,
                    std::to_string(epoch * tokens_per_epoch), claim(), marks(), "no", mark});
}

std::string node_client::announce_as(const std::string& run_id, std::uint64_t epoch, const std::string& change_id,
                                     std::uint64_t seen) {
    return command({"EVAL", redis::announce_script().text, "1", "fg:node", run_id, std::to_string(epoch), change_id,
                    "1024", std::to_string(seen)});
}

std::string node_client::announce(std::uint64_t epoch, const std::string& change_id) {
    const std::string floor = command({"HGET", "fg:node", "floor"});
    return announce_as(run_id_, epoch, change_id, std::strtoull(floor.c_str(), nullptr, 10));
}

std::string node_client::marks() {
    const std::string record = command({"EVAL", redis::identify_script().text, "1", "fg:node"});
    std::size_t at = 0;
    for (int word = 0; word < 3; ++word)
        at = record.find(' ', at + 1);
    return record.substr(0, at);
}

std::string node_client::admit(std::uint64_t epoch) {
    return readmit(run_id_, epoch, claim());
}

std::vector<node_reply> node_client::run_items(const std::string& run_id, command_kind kind,
                                               const std::vector<item>& items) {
    std::vector<batch_item> batch;
    for (const item& i : items)
        batch.push_back({std::make_shared<fixed_call>(i.call), i.token});
    const std::string batch_command = redis::format_batch(kind, batch, run_id, true);
    redisAppendFormattedCommand(connection_.get(), batch_command.data(), batch_command.size());
    const reply_ptr reply = next_reply(*connection_);
    std::vector<node_reply> out(items.size());
    if (reply->type == REDIS_REPLY_ERROR) {
        const bool uninit = text(*reply).starts_with("UNINIT");
        for (node_reply& r : out) {
            r.status = uninit ? reply_status::not_admitted : reply_status::error;
            r.text = text(*reply);
        }
        return out;
    }
    if (reply->elements != items.size()) throw std::runtime_error("wrong number of answers: " + text(*reply));
    for (std::size_t i = 0; i < items.size(); ++i)
        out[i] = parse_reply(kind, text(*reply->element[i]));
    return out;
}

node_reply node_client::run(command_kind kind, const lease_call& call, std::uint64_t token) {
    return run_items(run_id_, kind, {{call, fencing_token{token}}}).front();
}

std::vector<node_reply> node_client::run_all(command_kind kind, const std::vector<item>& items) {
    return run_items(run_id_, kind, items);
}

node_reply node_client::run_as(const std::string& run_id, command_kind kind, const lease_call& call,
                               std::uint64_t token) {
    return run_items(run_id, kind, {{call, fencing_token{token}}}).front();
}

std::string node_client::token_of(const std::string& resource) {
    const std::string whole = lease(resource);
    const auto record = lease_record::parse(whole);
    return record ? std::to_string(value_of(record->token)) : whole;
}

std::string node_client::stamp_of(const std::string& resource) {
    const std::string whole = lease(resource);
    const std::size_t at = std::min(whole.find(' '), whole.size() - 1) + 1;
    return whole.substr(at, whole.find(' ', at) - at);
}

std::string node_client::counter(const std::string& resource) {
    return command({"GET", "fg:token:" + std::to_string(resource_name::parse(resource)->bucket())});
}

void node_client::set_counter(const std::string& resource, std::uint64_t value) {
    command({"SET", "fg:token:" + std::to_string(resource_name::parse(resource)->bucket()), std::to_string(value)});
}

std::string node_client::all_keys() {
    return command({"EVAL",
                    "local out = {} local keys = redis.call('KEYS', 'fg:[lt]*') table.sort(keys) "
                    "for _, k in ipairs(keys) do out[#out + 1] = k .. '=' .. redis.call('GET', k) end return out",
                    "0"});
}

nonce nonce_of(char letter) {
    return nonce::from_bits(static_cast<std::uint64_t>(letter), 0xabcdee);
}

lease_call call_of(char letter, std::vector<std::string> resources, milliseconds ttl) {
    lease_call call;
    for (const std::string& r : resources)
        call.resources.push_back(*resource_name::parse(r));
    std::sort(call.resources.begin(), call.resources.end());
    call.attempt_id = nonce_of(letter);
    call.ttl = ttl;
    call.renewals_max = 1'000;
    call.hold_max = milliseconds{3'600'000};
    lease_claims claims;
    claims.resources = call.resources;
    claims.holder.principal = "tests";
    claims.granted_at = wall_time{milliseconds{1'795'000'000'000}};
    call.granted_at = claims.granted_at;
    claims.hold = call.hold = hold_id::of_grant(call.attempt_id);
    call.tail = lease_tail(claims, {ttl, 0, {}, {}, {}});
    return call;
}

lease_call call_of_owner(char letter, std::vector<std::string> resources, const std::string& owner,
                         const std::string& wake_mark) {
    lease_call call = call_of(letter, std::move(resources));
    lease_claims claims;
    claims.resources = call.resources;
    claims.holder = {"tests", owner};
    claims.hold = call.hold;
    call.tail = lease_tail(claims, {call.ttl, 0, {}, {}, wake_mark});
    return call;
}

lease_call with_hold(lease_call call, std::uint64_t hold) {
    call.hold = hold_id::from_bits(hold * 2);  // never the two ids of one hold
    return call;
}

std::size_t count_holds(const node_reply& reply) {
    hold_view view;
    view.add(reply.text);
    return view.count();
}

stepwise_attempt::stepwise_attempt(std::vector<node_client>& nodes, lease_call call)
    : nodes_(nodes), call_(std::move(call)), machine_(nodes.size()), confirms_(nodes.size()) {
    machine_.start();
}

node_reply stepwise_attempt::deliver_acquire(std::size_t node) {
    return nodes_.at(node).run(command_kind::acquire, call_);
}

void stepwise_attempt::deliver_reply(std::size_t node, const node_reply& reply) {
    queue_confirms(machine_.acquire_answered(static_cast<node_index>(node), reply));
}

node_reply stepwise_attempt::acquire_on(std::size_t node) {
    const node_reply reply = deliver_acquire(node);
    deliver_reply(node, reply);
    return reply;
}

reply_status stepwise_attempt::deliver_confirm(std::size_t node) {
    if (confirms_.at(node).empty()) throw std::logic_error("no CONFIRM to this node is pending");
    const fencing_token t = confirms_[node].front();
    confirms_[node].pop_front();
    const node_reply reply = nodes_.at(node).run(command_kind::confirm, call_, value_of(t));
    queue_confirms(machine_.confirm_answered(static_cast<node_index>(node), t, reply));
    return reply.status;
}

void stepwise_attempt::deliver_all_confirms() {
    for (bool any = true; any;) {
        any = false;
        for (std::size_t n = 0; n < nodes_.size(); ++n) {
            while (has_pending_confirm(n)) {
                any = true;
                deliver_confirm(n);
            }
        }
    }
}

void stepwise_attempt::queue_confirms(const acquire_machine::step& step) {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
        if (step.targets[n]) confirms_[n].push_back(step.token);
    }
}

}  // namespace fencegate::testing
