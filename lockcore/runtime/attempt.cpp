#include <runtime/attempt.hpp>

namespace lockcore {
namespace {

constexpr node_index at(std::size_t n) {
    return static_cast<node_index>(n);
}

/// The node may not have done what it was asked, and will not do it by itself any more.
constexpr bool may_be_unheard(reply_status s) {
    return s == reply_status::unreachable || s == reply_status::not_admitted || s == reply_status::broken ||
           s == reply_status::error;
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

void round_repeater::add(std::shared_ptr<round_attempt> round) {
    if (rounds_.size() >= rounds_max) return;
    const monotonic_time until = std::chrono::steady_clock::now() + longest_;
    rounds_.push_back({std::move(round), until});
}

void round_repeater::tick(monotonic_time now) {
    if (now < next_) return;
    next_ = now + pause;
    // A node that can't be asked answers at once; nothing is added meanwhile, for what repeats is here already.
    std::erase_if(rounds_, [now](const entry& e) { return now >= e.until || !e.round->repeat(); });
}

acquire_attempt::acquire_attempt(redis::lease_call call, link_span links, std::shared_ptr<token_memory> heard,
                                 std::shared_ptr<round_attempt> release_previous)
    : call_(std::move(call)),
      links_(links.begin(), links.end()),
      heard_(std::move(heard)),
      machine_(links.size()),
      previous_(links.size()),
      release_previous_(std::move(release_previous)) {}

void acquire_attempt::start() {
    started_at_ = boot_clock::now();  // before the first send (R6)
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
            node_reply reply;
            reply.status = why[n];
            if (step.kind == command_kind::acquire) note_previous(at(n), reply);
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

void acquire_attempt::on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) {
    switch (kind) {
        case command_kind::acquire:
            note_previous(node, reply);
            perform(machine_.acquire_answered(node, reply));
            break;
        case command_kind::confirm:
            perform(machine_.confirm_answered(node, token, reply));
            break;
        default:
            return;  // an undo's answer changes nothing
    }
    heard_->heard(call_.resources, machine_.highest_heard());
    if (thin_to_) report_thin();
}

void acquire_attempt::watch_thin(event_observer& events) {
    thin_to_ = &events;
    report_thin();
}

void acquire_attempt::report_thin() {
    if (!machine_.settled()) return;
    event_observer& events = *std::exchange(thin_to_, nullptr);
    if (machine_.stamps() != majority_of(links_.size()) || machine_.stamps() == links_.size()) return;
    event e;
    e.kind = event_kind::lease_thin;
    e.at = std::chrono::system_clock::now();
    e.resources = call_.resources;
    e.token = machine_.token();
    e.granted_at = call_.granted_at;
    e.nodes_granted = machine_.stamps();
    e.nodes = links_.size();
    events.on_event(std::move(e));
}

void acquire_attempt::note_previous(node_index node, const node_reply& reply) {
    if (!call_.previous) return;
    node_reply about;
    about.status = reply.status;
    if (reply.status == reply_status::kept) {
        about.status = reply_status::ok;
        about.text = reply.text;
    } else if ((reply.status == reply_status::ok && !reply.took_over) || reply.status == reply_status::held ||
               reply.status == reply_status::own) {
        about.status = reply_status::lost;
    }
    if (previous_.answered(node, about) != majority_round::verdict::pending) given_back.fire();
    // Behind the attempt: where that was not done, or may not have been, the lease would stay until its ttl.
    if (reply.status == reply_status::ok || reply.status == reply_status::kept) return;
    node_set there;
    there.set(value_of(node));
    release_previous_->start_on(there);
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

round_attempt::round_attempt(command_kind kind, redis::lease_call call, lease_claims claims, link_span links,
                             std::shared_ptr<round_repeater> repeater)
    : kind_(kind),
      call_(std::move(call)),
      claims_(std::move(claims)),
      links_(links.begin(), links.end()),
      machine_(links.size()),
      repeater_(std::move(repeater)) {}

void round_attempt::start() {
    start_on(machine_.start());
}

void round_attempt::start_on(node_set to) {
    started_at_ = boot_clock::now();
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (!to[n]) continue;
        node_reply refused;
        refused.status = links_[n]->send(kind_, shared_from_this(), claims_.token);
        if (refused.status != reply_status::ok) on_reply(at(n), kind_, claims_.token, refused);
    }
}

bool round_attempt::repeat() {
    const node_set to = std::exchange(unheard_, {});
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (!to[n]) continue;
        unheard_[n] =
            !links_[n]->votes() || links_[n]->send(kind_, shared_from_this(), claims_.token) != reply_status::ok;
    }
    repeats_ = unheard_.any();
    return repeats_;
}

void round_attempt::on_reply(node_index node, command_kind kind, fencing_token, const node_reply& reply) {
    if (kind != kind_) return;  // the answer to a top-up changes nothing: the next renewal asks again
    const auto verdict = machine_.answered(node, reply);
    if (verdict == majority_round::verdict::yes && kind_ == command_kind::renew) top_up();
    if (repeater_ && may_be_unheard(reply.status)) {
        unheard_.set(value_of(node));
        if (!std::exchange(repeats_, true)) repeater_->add(shared_from_this());
    }
    if (verdict != majority_round::verdict::pending) done.fire();
}

void round_attempt::top_up() {
    // An answer that comes after a good part of the ttl must not put back a lease that may be over by now.
    if (!may_top_up_ || boot_clock::now() - started_at_ >= call_.ttl / 4) return;
    call_.tail = lease_tail(claims_, {call_.ttl, machine_.value(), machine_.held(), {}, {}, machine_.closed()});
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (topped_up_[n] || machine_.answer_of(at(n)) != reply_status::lost) continue;
        topped_up_.set(n);
        (void)links_[n]->send(command_kind::top_up, shared_from_this(), claims_.token);
    }
}

std::vector<node_answer> round_attempt::answers() const {
    return name_answers(machine_, links_);
}

survey_attempt::survey_attempt(resource_name resource, link_span links)
    : links_(links.begin(), links.end()), machine_(links.size()) {
    call_.resources.push_back(std::move(resource));
}

void survey_attempt::start() {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        node_reply refused;
        refused.status = links_[n]->send(command_kind::look, shared_from_this(), fencing_token{});
        if (refused.status != reply_status::ok) on_reply(at(n), command_kind::look, fencing_token{}, refused);
    }
}

void survey_attempt::on_reply(node_index node, command_kind, fencing_token, const node_reply& reply) {
    if (machine_.answered(node, reply) != survey::verdict::pending) done.fire();
}

std::vector<node_answer> survey_attempt::answers() const {
    return name_answers(machine_, links_);
}

namespace {

list_part parse_list_part(std::string_view text) {
    const auto next_word = [&text] {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        return word;
    };
    list_part out;
    out.cursor = next_word();
    while (!text.empty()) {
        const std::string_view word = next_word();
        const bool never_runs_out = word.starts_with('!');
        out.names.push_back({std::string(word.substr(never_runs_out ? 1 : 0)), never_runs_out});
    }
    return out;
}

}  // namespace

list_attempt::list_attempt(std::string cursor, std::string pattern, std::shared_ptr<redis::node_link> link)
    : link_(std::move(link)) {
    call_.cursor = std::move(cursor);
    call_.pattern = std::move(pattern);
}

void list_attempt::start() {
    if (link_->send(command_kind::list, shared_from_this(), fencing_token{}) != reply_status::ok) done.fire();
}

void list_attempt::on_reply(node_index, command_kind, fencing_token, const node_reply& reply) {
    if (done.fired()) return;
    if (reply.status == reply_status::ok) part_ = parse_list_part(reply.text);
    done.fire();
}

}  // namespace lockcore
