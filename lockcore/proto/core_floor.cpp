// The floor of a change of the storage generation (docs/protocol.md, STORAGE GENERATION).
#include <proto/core.hpp>

#include <algorithm>
#include <charconv>
#include <memory>

namespace lockcore {

/// An announcement that is being sent to the nodes. It is answered once, as soon as no further answer can change it, or
/// when the nodes have had the time for one answer.
struct core::announcement {
    call_id call{};
    std::size_t unanswered = 0;
    std::size_t accepted = 0, admitted = 0;  ///< Nodes that have the floor; those of them that are admitted.
    floor_announcement outcome;
    bool answered = false;
};

void core::end_announcement(announcement& a) {
    if (std::exchange(a.answered, true)) return;
    a.outcome.by_majority = a.admitted >= majority_of(links_.size());
    a.outcome.by_all = a.accepted == links_.size();
    answer(a.call, result<floor_announcement>(a.outcome));
}

void core::on(input::announce_floor what) {
    const auto a = std::make_shared<announcement>();
    a->call = what.call;
    a->unanswered = 1;  // until all requests are sent
    const auto one_answered = [this, a] {
        if (--a->unanswered == 0) end_announcement(*a);
    };
    for (const auto& link : links_) {
        if (!link->is_identified()) continue;
        ++a->unanswered;
        link->ask(node_request::announce{link->run_id(), what.floor}, [a, one_answered](node_response::any response) {
            const auto& reply = std::get<node_response::text>(response);
            const bool is_admitted = reply.value == "ADMITTED";
            if (is_admitted) ++a->admitted;
            if (is_admitted || reply.value == "OK") ++a->accepted;
            std::uint64_t seen = 0;
            if (reply.refusal.empty())
                std::from_chars(reply.value.data(), reply.value.data() + reply.value.size(), seen);
            a->outcome.too_close = std::max(a->outcome.too_close, epoch{seen});
            one_answered();
        });
    }
    // A connection that is lost answers nothing.
    ctx_.timers.set(ctx_.now.monotonic + settings_.node_dead_after, [this, a] { end_announcement(*a); });
    one_answered();
}

void core::on(const input::raise_hints& what) {
    floor_ = std::max(floor_, what.floor);
}

}  // namespace lockcore
