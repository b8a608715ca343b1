#include <proto/acquire.hpp>

#include <algorithm>

namespace lockcore {

acquire::acquire(std::size_t nodes) : nodes_(nodes), quorum_(majority_of(nodes)) {}

acquire::step acquire::start() {
    step s;
    for (std::size_t n = 0; n < nodes_; ++n)
        s.to.set(n);
    return s;
}

acquire::step acquire::acquire_answered(node_index node, const node_reply& reply) {
    slot& s = slots_[value_of(node)];
    s.answer = reply.status;
    if (reply.status == reply_status::held) {
        s.remaining = reply.remaining;
        if (reply.value == 0) occupied_.set(value_of(node));
        hear(reply.value);
    }
    if (reply.status == reply_status::own) {
        s.remaining = reply.remaining;
        if (auto record = lease_record::parse(reply.text)) {
            hear(value_of(record->token));
            own_leases_.push_back(std::move(*record));
        }
    }
    if (reply.status != reply_status::ok) {
        s.at = phase::out;
        return settle();
    }
    s.ours = true;
    s.counter = reply.value;
    hear(reply.value);
    if (verdict_ == verdict::granted) {
        // Too late to be needed, but a lease that stands under T on more nodes survives the loss of more. T itself no
        // longer changes.
        s.at = s.counter == value_of(token_) ? phase::stamped : phase::raised;
        return confirm_where_needed();
    }
    if (verdict_ != verdict::pending) return {};
    if (token_ == fencing_token{}) {
        s.at = phase::raised;
        return choose_token();
    }
    // A late answer: exactly T is a stamp, below T can be confirmed, above T is no stamp (R4).
    s.at = s.counter == value_of(token_) ? phase::stamped : phase::raised;
    step next = confirm_where_needed();
    return next.to.any() ? next : settle();
}

acquire::step acquire::confirm_answered(node_index node, fencing_token sent, const node_reply& reply) {
    slot& s = slots_[value_of(node)];
    s.answer = reply.status;
    if (verdict_ == verdict::granted)
        s.at = reply.status == reply_status::ok && sent == token_ ? phase::stamped : phase::out;
    if (verdict_ != verdict::pending) return {};
    switch (reply.status) {
        case reply_status::ok:
            if (sent == token_ && s.at != phase::stamped) {
                s.at = phase::stamped;
                s.counter = value_of(sent);
            }
            return settle();
        case reply_status::stale:
            hear(reply.value);
            s.counter = std::max(s.counter, reply.value);
            // An answer to an older T says nothing against today's unless the node is past that as well.
            if (fencing_token{reply.value} > token_) return raise_to(fencing_token{reply.value});
            return settle();
        case reply_status::lost:
            s.ours = false;
            s.at = phase::out;
            return settle();
        default:
            if (sent == token_) s.at = phase::out;
            return settle();
    }
}

acquire::step acquire::choose_token() {
    std::size_t ours = 0;
    std::uint64_t highest = 0;
    for (const slot& s : slots_) {
        if (!s.ours) continue;
        ++ours;
        highest = std::max(highest, s.counter);
    }
    if (ours < quorum_) return settle();
    token_ = fencing_token{highest};
    for (slot& s : slots_) {
        if (s.ours && s.counter == highest) s.at = phase::stamped;
    }
    // Where all counters agree one round was enough.
    if (stamps() >= quorum_) return settle();
    return confirm_where_needed();
}

acquire::step acquire::raise_to(fencing_token floor) {
    if (++raises_ > raises_max) {
        verdict_ = verdict::no_quorum;
        return {};
    }
    token_ = floor;
    for (slot& s : slots_) {
        if (s.ours && s.at != phase::out)
            s.at = phase::raised;  // all stamps are dropped, the reporting node gets CONFIRM too (R5)
    }
    return confirm_where_needed();
}

acquire::step acquire::confirm_where_needed() {
    step s;
    s.kind = command_kind::confirm;
    s.token = token_;
    for (std::size_t n = 0; n < nodes_; ++n) {
        if (slots_[n].at != phase::raised || !slots_[n].ours || slots_[n].counter > value_of(token_)) continue;
        slots_[n].at = phase::confirming;
        s.to.set(n);
    }
    return s;
}

acquire::step acquire::settle() {
    if (verdict_ != verdict::pending) return {};
    if (stamps() >= quorum_) {
        verdict_ = verdict::granted;
        return {};
    }
    const std::size_t hopeful = nodes_ - count(phase::out);
    if (hopeful >= quorum_) {
        // Nodes past T can't be stamped with it; if the others no longer suffice, T has to come up to them.
        std::size_t ahead = 0;
        std::uint64_t highest = 0;
        for (std::size_t n = 0; n < nodes_; ++n) {
            if (token_ == fencing_token{} || slots_[n].at != phase::raised) continue;
            ++ahead;
            highest = std::max(highest, slots_[n].counter);
        }
        return hopeful - ahead >= quorum_ || ahead == 0 ? step{} : raise_to(fencing_token{highest});
    }
    // Failed. Why takes a majority of answers, which those still out may bring.
    std::size_t answered = 0;
    for (std::size_t n = 0; n < nodes_; ++n) {
        const reply_status a = slots_[n].answer;
        if (a == reply_status::ok || a == reply_status::held || a == reply_status::lost || a == reply_status::stale ||
            a == reply_status::own || a == reply_status::kept)
            ++answered;
    }
    const std::size_t own = most_alike_own_leases();
    if (answered >= quorum_ && (own == 0 || own >= quorum_ || own + (nodes_ - answered) < quorum_)) {
        verdict_ = verdict::locked;
    } else if (answered >= quorum_) {
        // Whether the holder's own lease is on a majority hangs on those that have not answered, or will not.
        if (count(phase::asked) == 0) verdict_ = verdict::no_quorum;
    } else if (answered + count(phase::asked) < quorum_) {
        verdict_ = verdict::no_quorum;
    }
    return {};
}

milliseconds acquire::remaining() const {
    std::array<milliseconds, nodes_max> waits{};
    std::size_t held = 0, free = 0;
    for (std::size_t n = 0; n < nodes_; ++n) {
        const slot& s = slots_[n];
        if (s.answer == reply_status::held || s.answer == reply_status::own)
            waits[held++] = s.remaining < milliseconds{0} ? milliseconds::max() : s.remaining;
        if (s.ours) ++free;
    }
    if (held == 0 || free >= quorum_) return milliseconds{0};
    std::sort(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(held));
    return waits[std::min(quorum_ - free, held) - 1];
}

std::size_t acquire::alike(const lease_record& a) const {
    return static_cast<std::size_t>(std::count_if(own_leases_.begin(), own_leases_.end(), [&](const lease_record& b) {
        return a.attempt == b.attempt && a.token == b.token;
    }));
}

std::size_t acquire::most_alike_own_leases() const {
    std::size_t most = 0;
    for (const lease_record& a : own_leases_)
        most = std::max(most, alike(a));
    return most;
}

std::optional<lease_record> acquire::own_lease() const {
    for (const lease_record& a : own_leases_) {
        if (alike(a) < quorum_) continue;
        // A node may have missed a hold, and its key, that a majority has.
        lease_record merged = a;
        for (const lease_record& b : own_leases_) {
            if (a.attempt == b.attempt && a.token == b.token) merged.merge(b);
        }
        return merged;
    }
    return std::nullopt;
}

node_set acquire::undo_targets() const {
    node_set targets;
    for (std::size_t n = 0; n < nodes_; ++n) {
        switch (slots_[n].answer) {
            case reply_status::held:
            case reply_status::own:
            case reply_status::kept:
            case reply_status::overflow:
            case reply_status::not_admitted:
            case reply_status::unreachable:
            case reply_status::error:
                if (slots_[n].ours) targets.set(n);
                break;
            case reply_status::lost:
                break;
            default:
                targets.set(n);
        }
    }
    return targets;
}

std::size_t acquire::count(phase p) const {
    return static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(nodes_),
                                                  [p](const slot& s) { return s.at == p; }));
}

void acquire::hear(std::uint64_t counter) {
    highest_heard_ = std::max(highest_heard_, fencing_token{counter});
}

}  // namespace lockcore
