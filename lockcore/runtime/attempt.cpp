#include <runtime/attempt.hpp>

namespace lockcore {
namespace {

constexpr node_index at(std::size_t n) {
    return static_cast<node_index>(n);
}

template <class Machine>
std::vector<node_answer> name_answers(const Machine& machine,
                                      const std::vector<std::shared_ptr<redis::node_link>>& links) {
    std::vector<node_answer> out;
    out.reserve(links.size());
    for (std::size_t n = 0; n < links.size(); ++n)
        out.push_back({links[n]->name(), to_string(machine.answer_of(at(n)))});
    return out;
}

}  // namespace

acquire_attempt::acquire_attempt(redis::lease_call call, link_span links)
    : call_(std::move(call)), links_(links.begin(), links.end()), machine_(links.size()) {}

void acquire_attempt::start() {
    started_at_ = std::chrono::steady_clock::now();  // before the first send (R6)
    perform(machine_.start());
}

void acquire_attempt::perform(acquire::step step) {
    // A node that can't be asked answers at once, which may ask for more; hence the loop.
    while (step.to.any()) {
        node_set refused;
        std::array<reply_status, nodes_max> why{};
        for (std::size_t n = 0; n < links_.size(); ++n) {
            if (!step.to[n]) continue;
            why[n] = links_[n]->send(step.kind, shared_from_this(), step.token);
            refused[n] = why[n] != reply_status::ok;
        }
        acquire::step next;
        for (std::size_t n = 0; n < links_.size(); ++n) {
            if (!refused[n]) continue;
            const node_reply reply{why[n], 0, milliseconds{0}};
            const acquire::step s = step.kind == command_kind::acquire
                                        ? machine_.acquire_answered(at(n), reply)
                                        : machine_.confirm_answered(at(n), step.token, reply);
            if (s.to.any())
                next = s;  // all steps that follow a failed send carry the same token: the latest covers them
        }
        step = next;
    }
    if (machine_.outcome() != acquire::verdict::pending) done.fire();
}

void acquire_attempt::on_reply(node_index node, command_kind kind, fencing_token token, node_reply reply) {
    switch (kind) {
        case command_kind::acquire:
            return perform(machine_.acquire_answered(node, reply));
        case command_kind::confirm:
            return perform(machine_.confirm_answered(node, token, reply));
        default:
            return;  // an undo's answer changes nothing
    }
}

void acquire_attempt::undo() {
    const node_set targets = machine_.undo_targets();
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (targets[n]) (void)links_[n]->send(command_kind::undo, shared_from_this(), fencing_token{});
    }
}

std::vector<node_answer> acquire_attempt::answers() const {
    return name_answers(machine_, links_);
}

bool acquire_attempt::overflowed() const {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (machine_.answer_of(at(n)) == reply_status::overflow) return true;
    }
    return false;
}

round_attempt::round_attempt(command_kind kind, redis::lease_call call, fencing_token token, link_span links)
    : kind_(kind), call_(std::move(call)), token_(token), links_(links.begin(), links.end()), machine_(links.size()) {}

void round_attempt::start() {
    started_at_ = std::chrono::steady_clock::now();
    const node_set to = machine_.start();
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (!to[n]) continue;
        const reply_status sent = links_[n]->send(kind_, shared_from_this(), token_);
        if (sent != reply_status::ok) on_reply(at(n), kind_, token_, {sent, 0, milliseconds{0}});
    }
}

void round_attempt::on_reply(node_index node, command_kind kind, fencing_token, node_reply reply) {
    if (kind != kind_) return;  // a top-up's answer changes nothing: the next renewal asks again
    const auto verdict = machine_.answered(node, reply);
    // An answer that comes after a good part of the ttl must not put back a lease that may be over by now.
    const bool fresh = std::chrono::steady_clock::now() - started_at_ < call_.ttl / 4;
    if (verdict == majority_round::verdict::yes && kind_ == command_kind::renew && fresh) top_up();
    if (verdict != majority_round::verdict::pending) done.fire();
}

void round_attempt::top_up() {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (topped_up_[n] || machine_.answer_of(at(n)) != reply_status::lost) continue;
        topped_up_.set(n);
        (void)links_[n]->send(command_kind::top_up, shared_from_this(), token_);
    }
}

std::vector<node_answer> round_attempt::answers() const {
    return name_answers(machine_, links_);
}

}  // namespace lockcore
