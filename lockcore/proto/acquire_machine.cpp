#include <lockcore/invariant.hpp>
#include <proto/acquire_machine.hpp>

#include <algorithm>

namespace lockcore {
namespace {

bool is_same(const lease_record& a, const lease_record& b) {
    return a.is_same_lease(b) && a.token == b.token;
}

}  // namespace

acquire_machine::acquire_machine(std::size_t nodes) : nodes_(nodes), quorum_(majority_of(nodes)) {}

acquire_machine::step acquire_machine::start() {
    step s;
    for (std::size_t n = 0; n < nodes_; ++n)
        s.targets.set(n);
    return s;
}

acquire_machine::step acquire_machine::acquire_answered(node_index node, const node_reply& reply) {
    slot& s = slots_[value_of(node)];
    s.answer = reply.status;
    if (reply.status == reply_status::held) {
        s.remaining = reply.remaining;
        if (reply.value == 0) occupied_.set(value_of(node));
        observe_token(reply.value);
    }
    if (reply.status == reply_status::own) {
        s.remaining = reply.remaining;
        if (auto record = lease_record::parse(reply.text)) {
            observe_token(value_of(record->token));
            own_leases_.push_back(std::move(*record));
        }
    }
    if (reply.status != reply_status::ok) {
        s.state = phase::excluded;
        return evaluate();
    }
    s.acquired = true;
    s.counter = reply.value;
    observe_token(reply.value);
    if (verdict_ == verdict::locked || verdict_ == verdict::no_quorum) return {};
    if (token_ == fencing_token{}) {
        s.state = phase::unstamped;
        return choose_token();
    }
    // An answer after T was chosen: exactly T is a stamp, below T can be confirmed, above T is no stamp (R4). After the
    // grant it is confirmed too: a lease with T on more nodes survives the loss of more nodes.
    s.state = s.counter == value_of(token_) ? phase::stamped : phase::unstamped;
    step next = confirm_where_needed();
    return next.targets.any() ? next : evaluate();
}

acquire_machine::step acquire_machine::confirm_answered(node_index node, fencing_token sent, const node_reply& reply) {
    slot& s = slots_[value_of(node)];
    s.answer = reply.status;
    if (verdict_ == verdict::granted)
        s.state = reply.status == reply_status::ok && sent == token_ ? phase::stamped : phase::excluded;
    if (verdict_ != verdict::pending) return {};
    switch (reply.status) {
        case reply_status::ok:
            if (sent == token_ && s.state != phase::stamped) {
                s.state = phase::stamped;
                s.counter = value_of(sent);
            }
            return evaluate();
        case reply_status::stale:
            observe_token(reply.value);
            s.counter = std::max(s.counter, reply.value);
            // A reply to a CONFIRM with an older T matters only if the counter is above the present T too.
            if (fencing_token{reply.value} > token_) return raise_to(fencing_token{reply.value});
            if (sent == token_) {  // no answer of this protocol: STALE has a counter above the T that it refuses
                s.answer = reply_status::error;
                s.state = phase::excluded;
            }
            return evaluate();
        case reply_status::lost:
            s.acquired = false;
            s.state = phase::excluded;
            return evaluate();
        default:
            if (sent == token_) s.state = phase::excluded;
            return evaluate();
    }
}

acquire_machine::step acquire_machine::choose_token() {
    std::size_t acquired = 0;
    std::uint64_t highest = 0;
    for (const slot& s : slots_) {
        if (!s.acquired) continue;
        ++acquired;
        highest = std::max(highest, s.counter);
    }
    if (acquired < quorum_) return evaluate();
    token_ = fencing_token{highest};
    for (slot& s : slots_) {
        if (s.acquired && s.counter == highest) s.state = phase::stamped;
    }
    // If all counters are equal, one round is enough.
    if (stamps() >= quorum_) return evaluate();
    return confirm_where_needed();
}

acquire_machine::step acquire_machine::raise_to(fencing_token floor) {
    if (++raises_ > raises_max) {
        verdict_ = verdict::no_quorum;
        return {};
    }
    LOCKCORE_INVARIANT(floor > token_);  // T never falls
    token_ = floor;
    for (slot& s : slots_) {
        if (s.acquired && s.state != phase::excluded)
            s.state = phase::unstamped;  // all stamps are dropped, the reporting node gets CONFIRM too (R5)
    }
    return confirm_where_needed();
}

acquire_machine::step acquire_machine::confirm_where_needed() {
    step s;
    s.kind = command_kind::confirm;
    s.token = token_;
    for (std::size_t n = 0; n < nodes_; ++n) {
        if (slots_[n].state != phase::unstamped || !slots_[n].acquired || slots_[n].counter > value_of(token_))
            continue;
        slots_[n].state = phase::confirming;
        s.targets.set(n);
    }
    return s;
}

acquire_machine::step acquire_machine::evaluate() {
    if (verdict_ != verdict::pending) return {};
    if (stamps() >= quorum_) {
        LOCKCORE_INVARIANT(token_ != fencing_token{});
        verdict_ = verdict::granted;
        return {};
    }
    if (nodes_ - count(phase::excluded) >= quorum_) return raise_if_needed();
    verdict_ = find_cause();
    return {};
}

acquire_machine::step acquire_machine::raise_if_needed() {
    const std::size_t nodes_above_token = token_ == fencing_token{} ? 0 : count(phase::unstamped);
    const std::size_t nodes_that_can_stamp = nodes_ - count(phase::excluded) - nodes_above_token;
    if (nodes_that_can_stamp >= quorum_ || nodes_above_token == 0) return {};
    std::uint64_t highest = 0;
    for (const slot& s : slots_) {
        if (s.state == phase::unstamped) highest = std::max(highest, s.counter);
    }
    return raise_to(fencing_token{highest});
}

acquire_machine::verdict acquire_machine::find_cause() const {
    std::size_t answered = 0;
    for (std::size_t n = 0; n < nodes_; ++n) {
        const reply_status a = slots_[n].answer;
        if (a == reply_status::ok || a == reply_status::held || a == reply_status::lost || a == reply_status::stale ||
            a == reply_status::own || a == reply_status::other_holds)
            ++answered;
    }
    const std::size_t outstanding = count(phase::acquiring);
    if (answered < quorum_) return answered + outstanding < quorum_ ? verdict::no_quorum : verdict::pending;
    const std::size_t own = most_reports_of_one_lease();
    if (own == 0 || own >= quorum_ || own + (nodes_ - answered) < quorum_) return verdict::locked;
    // Whether the holder's own lease is on a majority depends on nodes that have not answered.
    return outstanding == 0 ? verdict::no_quorum : verdict::pending;
}

milliseconds acquire_machine::remaining() const {
    std::array<milliseconds, nodes_max> waits{};
    std::size_t held = 0, free = 0;
    for (std::size_t n = 0; n < nodes_; ++n) {
        const slot& s = slots_[n];
        if (s.answer == reply_status::held || s.answer == reply_status::own)
            waits[held++] = s.remaining < milliseconds{0} ? milliseconds::max() : s.remaining;
        if (s.acquired) ++free;
    }
    if (held == 0 || free >= quorum_) return milliseconds{0};
    std::sort(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(held));
    return waits[std::min(quorum_ - free, held) - 1];
}

std::size_t acquire_machine::count_reports_of(const lease_record& lease) const {
    return static_cast<std::size_t>(std::count_if(own_leases_.begin(), own_leases_.end(),
                                                  [&](const lease_record& other) { return is_same(lease, other); }));
}

std::size_t acquire_machine::most_reports_of_one_lease() const {
    std::size_t most = 0;
    for (const lease_record& lease : own_leases_)
        most = std::max(most, count_reports_of(lease));
    return most;
}

std::optional<lease_record> acquire_machine::own_lease() const {
    for (const lease_record& lease : own_leases_) {
        if (count_reports_of(lease) < quorum_) continue;
        // A single node may lack a hold, and its idempotency key, that a majority has.
        lease_record merged = lease;
        for (const lease_record& other : own_leases_) {
            if (is_same(lease, other)) merged.merge(other);
        }
        return merged;
    }
    return std::nullopt;
}

bool acquire_machine::may_have_lease(const slot& s) {
    switch (s.answer) {
        case reply_status::lost:
            return false;
        case reply_status::held:
        case reply_status::own:
        case reply_status::other_holds:
        case reply_status::overflow:
        case reply_status::not_admitted:
        case reply_status::unreachable:
        case reply_status::error:
            return s.acquired;  // the node refused ACQUIRE; or, after it had granted it, CONFIRM
        default:
            return true;
    }
}

node_set acquire_machine::undo_targets() const {
    node_set targets;
    for (std::size_t n = 0; n < nodes_; ++n)
        targets[n] = may_have_lease(slots_[n]);
    return targets;
}

std::size_t acquire_machine::count(phase p) const {
    return static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(nodes_),
                                                  [p](const slot& s) { return s.state == p; }));
}

void acquire_machine::observe_token(std::uint64_t counter) {
    highest_observed_token_ = std::max(highest_observed_token_, fencing_token{counter});
}

}  // namespace lockcore
