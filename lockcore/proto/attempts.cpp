#include <proto/attempts.hpp>

#include <proto/epochs.hpp>

#include <algorithm>
#include <functional>

namespace lockcore {
namespace {

constexpr node_index at(std::size_t n) {
    return static_cast<node_index>(n);
}

/// Returns whether the node may not have run the command, and will not run it later.
constexpr bool may_not_have_run(reply_status s) {
    return s == reply_status::unreachable || s == reply_status::not_admitted || s == reply_status::broken ||
           s == reply_status::error;
}

/// Returns the reply, or silence in its place if it is read later than answer_bound after the first request
/// (docs/protocol.md, FAST READMISSION 1).
node_reply discount_if_late(const core_context& ctx, validity_time first_sent_at, const node_reply& reply) {
    if (ctx.now.validity - first_sent_at <= ctx.settings.answer_bound) return reply;
    node_reply late;
    late.status = reply_status::timeout;
    return late;
}

/// Returns the highest token, counter or stamp that a reply to ACQUIRE or CONFIRM claims; 0: none.
fencing_token highest_token_in(command_kind kind, const node_reply& reply) {
    const bool has_counter = kind == command_kind::acquire
                                 ? reply.status == reply_status::ok || reply.status == reply_status::held
                                 : kind == command_kind::confirm && reply.status == reply_status::stale;
    if (has_counter) return fencing_token{reply.value};
    if (kind != command_kind::acquire || reply.status != reply_status::own) return fencing_token{};
    const auto record = lease_record::parse(reply.text);
    return record ? std::max(record->token, fencing_token{record->stamp}) : fencing_token{};
}

}  // namespace

void round_repeater::add(std::shared_ptr<round_attempt> round) {
    if (rounds_.size() < rounds_max) rounds_.push_back(std::move(round));
}

void round_repeater::tick(const step_time& now) {
    if (now.monotonic < next_tick_) return;
    next_tick_ = now.monotonic + interval;
    // repeat() adds no entry to rounds_: a round that is repeated is in it already.
    std::erase_if(rounds_, [&](const std::shared_ptr<round_attempt>& round) {
        return now.validity - round->started_at() >= duration_ || !round->repeat();
    });
}

acquire_attempt::acquire_attempt(core_context& ctx, lease_call call, link_span links, token_memory& observed_tokens,
                                 std::shared_ptr<round_attempt> release_previous)
    : ctx_(ctx),
      decided_(ctx),
      previous_released_(ctx),
      call_(std::move(call)),
      links_(links),
      observed_tokens_(observed_tokens),
      machine_(links.size()),
      previous_round_(links.size()),
      release_previous_(std::move(release_previous)) {}

void acquire_attempt::start() {
    started_at_ = ctx_.now.validity;  // before the first send (R6)
    perform(machine_.start());
}

void acquire_attempt::perform(acquire_machine::step step) {
    // A node that can't be reached answers at once, and its answer may lead to the next step.
    while (step.targets.any()) {
        node_set refused;
        std::array<reply_status, nodes_max> statuses{};
        for (std::size_t n = 0; n < links_.size(); ++n) {
            if (!step.targets[n]) continue;
            statuses[n] = links_[n]->send(step.kind, shared_from_this(), step.token);
            refused[n] = statuses[n] != reply_status::ok;
        }
        acquire_machine::step next;
        for (std::size_t n = 0; n < links_.size(); ++n) {
            if (!refused[n]) continue;
            node_reply reply;
            reply.status = statuses[n];
            if (step.kind == command_kind::acquire) record_previous(at(n), reply);
            const acquire_machine::step s = step.kind == command_kind::acquire
                                                ? machine_.acquire_answered(at(n), reply)
                                                : machine_.confirm_answered(at(n), step.token, reply);
            if (s.targets.any())
                next = s;  // all steps after failed sends have the same token: the last step includes the others
        }
        step = next;
    }
    if (machine_.outcome() != acquire_machine::verdict::pending) decided_.make(shared_from_this());
}

void acquire_attempt::on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) {
    const node_reply counted = discount_if_implausible(node, kind, discount_if_late(ctx_, started_at_, reply));
    switch (kind) {
        case command_kind::acquire:
            record_previous(node, counted);
            perform(machine_.acquire_answered(node, counted));
            break;
        case command_kind::confirm:
            perform(machine_.confirm_answered(node, token, counted));
            break;
        default:
            return;  // the answer to `undo` has no effect
    }
    observed_tokens_.observe(call_.resources, machine_.highest_observed_token());
    if (reports_thin_) report_thin();
}

node_reply acquire_attempt::discount_if_implausible(node_index node, command_kind kind, const node_reply& reply) {
    const epoch claimed = epoch_of(highest_token_in(kind, reply));
    if (claimed <= links_[value_of(node)]->highest_plausible_epoch()) return reply;
    implausible_epochs_[value_of(node)] = claimed;
    if (kind == command_kind::acquire && reply.status == reply_status::ok) ignored_grants_.set(value_of(node));
    node_reply ignored;
    ignored.status = reply_status::error;
    return ignored;
}

std::optional<epoch> acquire_attempt::implausible_epoch_of_majority() const {
    std::array<epoch, nodes_max> sorted = implausible_epochs_;
    std::sort(sorted.begin(), sorted.end(), std::greater{});
    const epoch reached = sorted[majority_of(links_.size()) - 1];
    if (reached == epoch{} || value_of(reached) >= epochs_max) return std::nullopt;
    return reached;
}

void acquire_attempt::report_if_thin() {
    reports_thin_ = true;
    report_thin();
}

void acquire_attempt::report_thin() {
    if (!machine_.is_settled()) return;
    reports_thin_ = false;
    if (machine_.stamps() != majority_of(links_.size()) || machine_.stamps() == links_.size()) return;
    event e;
    e.kind = event_kind::lease_thin;
    e.at = ctx_.now.wall;
    e.resources = call_.resources;
    e.shared = call_.shared;
    e.attempt_id = call_.attempt_id;
    e.token = machine_.token();
    e.granted_at = call_.granted_at;
    e.nodes_granted = machine_.stamps();
    e.nodes = links_.size();
    ctx_.record(std::move(e));
}

void acquire_attempt::record_previous(node_index node, const node_reply& reply) {
    if (!call_.previous) return;
    node_reply release;
    release.status = reply.status;
    if (reply.status == reply_status::other_holds) {
        release.status = reply_status::ok;
        release.text = reply.text;
    } else if ((reply.status == reply_status::ok && !reply.took_over) || reply.status == reply_status::held ||
               reply.status == reply_status::own) {
        release.status = reply_status::lost;
    }
    if (previous_round_.answered(node, release) != majority_round::verdict::pending)
        previous_released_.make(shared_from_this());
    // On a node that did not release the previous lease, or may not have done so, the lease would stay until its ttl.
    if (reply.status == reply_status::ok || reply.status == reply_status::other_holds) return;
    node_set target;
    target.set(value_of(node));
    release_previous_->start_on(target);
}

void acquire_attempt::undo() {
    const node_set targets = machine_.undo_targets() | ignored_grants_;
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (targets[n]) (void)links_[n]->send(command_kind::undo, shared_from_this(), fencing_token{});
    }
}

std::vector<node_answer> acquire_attempt::answers() const {
    return collect_answers(machine_, links_);
}

bool acquire_attempt::needs_new_epoch() const {
    std::size_t overflowed = 0, usable = 0;
    for (std::size_t n = 0; n < links_.size(); ++n) {
        switch (machine_.answer_of(at(n))) {
            case reply_status::overflow:
                ++overflowed;
                break;
            case reply_status::not_admitted:
            case reply_status::unreachable:
            case reply_status::timeout:
            case reply_status::broken:
            case reply_status::error:
                break;
            default:
                ++usable;
        }
    }
    return overflowed > 0 && usable < majority_of(links_.size());
}

round_attempt::round_attempt(core_context& ctx, command_kind kind, lease_call call, lease_claims claims,
                             link_span links, round_repeater* repeater)
    : ctx_(ctx),
      decided_(ctx),
      kind_(kind),
      call_(std::move(call)),
      claims_(std::move(claims)),
      links_(links),
      machine_(links.size()),
      repeater_(repeater) {}

void round_attempt::start(continuation then) {
    start_on(machine_.start());
    if (then) decided_.then(shared_from_this(), std::move(then));
}

void round_attempt::start_on(node_set targets) {
    started_at_ = ctx_.now.validity;
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (!targets[n]) continue;
        node_reply refused;
        refused.status = links_[n]->send(kind_, shared_from_this(), claims_.token);
        if (refused.status != reply_status::ok) on_reply(at(n), kind_, claims_.token, refused);
    }
}

bool round_attempt::repeat() {
    const node_set targets = std::exchange(unconfirmed_, {});
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (!targets[n]) continue;
        unconfirmed_[n] =
            !links_[n]->is_voting() || links_[n]->send(kind_, shared_from_this(), claims_.token) != reply_status::ok;
    }
    repeats_ = unconfirmed_.any();
    return repeats_;
}

void round_attempt::on_reply(node_index node, command_kind, fencing_token, const node_reply& reply) {
    const bool is_bounded = kind_ != command_kind::release;
    const auto verdict = machine_.answered(node, is_bounded ? discount_if_late(ctx_, started_at_, reply) : reply);
    if (verdict == majority_round::verdict::yes && kind_ == command_kind::renew) top_up();
    if (repeater_ && may_not_have_run(reply.status)) {
        unconfirmed_.set(value_of(node));
        if (!std::exchange(repeats_, true)) repeater_->add(shared_from_this());
    }
    if (verdict != majority_round::verdict::pending) decided_.make(shared_from_this());
}

void round_attempt::top_up() {
    // After a longer part of the ttl the lease may have ended meanwhile, and must not be restored.
    const validity_time until = started_at_ + call_.ttl / 4;
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (topped_up_[n] || machine_.answer_of(at(n)) != reply_status::lost) continue;
        topped_up_.set(n);
        top_up_node(n, until, nullptr);
    }
}

void round_attempt::upgrade(std::function<void(round_attempt&, bool)> then) {
    struct progress {
        std::size_t counting = 0, awaited = 0;
    };
    const auto state = std::make_shared<progress>(progress{machine_.yes(), 0});
    node_set targets;
    for (std::size_t n = 0; n < links_.size(); ++n)
        targets[n] = machine_.uncounted_stamp(at(n)).has_value();
    state->awaited = targets.count();
    const validity_time until = ctx_.now.validity + ctx_.settings.answer_bound;
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (!targets[n]) continue;
        top_up_node(n, until, [this, state, then, self = shared_from_this()](bool counts) {
            if (counts) ++state->counting;
            if (--state->awaited > 0) return;
            ctx_.call_at_step_end(
                [then, enough = state->counting >= majority_of(links_.size()), self] { then(*self, enough); });
        });
    }
}

void round_attempt::top_up_node(std::size_t n, validity_time until, std::function<void(bool)> finished) {
    lease_call call = call_;
    call.tail = lease_tail(claims_, {call_.ttl, machine_.value(), machine_.held(), {}, {}, machine_.close_marks()});
    if (const auto stamp = machine_.uncounted_stamp(at(n))) call.seen = std::to_string(*stamp);
    std::make_shared<top_up_attempt>(ctx_, std::move(call), claims_.token, *links_[n], may_top_up_, until,
                                     std::move(finished))
        ->start();
}

top_up_attempt::top_up_attempt(core_context& ctx, lease_call call, fencing_token token, node_link& link,
                               std::shared_ptr<const bool> allowed, validity_time until,
                               std::function<void(bool)> finished)
    : ctx_(ctx),
      call_(std::move(call)),
      token_(token),
      link_(link),
      allowed_(std::move(allowed)),
      until_(until),
      finished_(std::move(finished)) {}

void top_up_attempt::start() {
    upgrades_ = !call_.seen.empty();
    const bool sent = *allowed_ && ctx_.now.validity < until_ &&
                      link_.send(command_kind::top_up, shared_from_this(), token_) == reply_status::ok;
    if (!sent) finish(false);
}

void top_up_attempt::on_reply(node_index, command_kind, fencing_token, const node_reply& reply) {
    if (reply.status != reply_status::ok || reply.counts || upgrades_)
        return finish(reply.status == reply_status::ok && reply.counts);
    call_.seen = std::to_string(reply.value);
    start();
}

void top_up_attempt::finish(bool counts) {
    if (const auto receiver = std::exchange(finished_, nullptr)) receiver(counts);
}

survey_attempt::survey_attempt(core_context& ctx, lease_call call, link_span links, std::size_t first)
    : decided_(ctx), call_(std::move(call)), links_(links), first_(first), machine_(links.size()) {}

void survey_attempt::start(decision<survey_attempt>::continuation then) {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        node_reply refused;
        refused.status = links_[n]->send(command_kind::look, shared_from_this(), fencing_token{});
        if (refused.status != reply_status::ok) on_reply(at(first_ + n), command_kind::look, fencing_token{}, refused);
    }
    decided_.then(shared_from_this(), std::move(then));
}

void survey_attempt::on_reply(node_index node, command_kind, fencing_token, const node_reply& reply) {
    if (machine_.answered(at(value_of(node) - first_), reply) != survey::verdict::pending)
        decided_.make(shared_from_this());
}

std::vector<node_answer> survey_attempt::answers() const {
    return collect_answers(machine_, links_);
}

namespace {

list_part parse_list_part(std::string_view text) {
    const auto next_word = [&text] {
        const std::string_view word = text.substr(0, text.find(resource_name::separator));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        return word;
    };
    list_part out;
    out.cursor = next_word();
    while (!text.empty()) {
        const std::string_view word = next_word();
        const bool without_ttl = word.starts_with('\1');
        out.names.push_back({std::string(word.substr(without_ttl ? 1 : 0)), without_ttl});
    }
    return out;
}

}  // namespace

list_attempt::list_attempt(core_context& ctx, std::string cursor, std::string pattern, node_link& link)
    : decided_(ctx), link_(link) {
    call_.cursor = std::move(cursor);
    call_.pattern = std::move(pattern);
}

void list_attempt::start(decision<list_attempt>::continuation then) {
    if (link_.send(command_kind::list, shared_from_this(), fencing_token{}) != reply_status::ok)
        decided_.make(shared_from_this());
    decided_.then(shared_from_this(), std::move(then));
}

void list_attempt::on_reply(node_index, command_kind, fencing_token, const node_reply& reply) {
    if (decided_.is_made()) return;
    if (reply.status == reply_status::ok) part_ = parse_list_part(reply.text);
    decided_.make(shared_from_this());
}

}  // namespace lockcore
