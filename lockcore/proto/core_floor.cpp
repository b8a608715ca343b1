// The floor of a change of the storage generation (docs/protocol.md, STORAGE GENERATION).
#include <proto/core.hpp>

#include <algorithm>
#include <charconv>
#include <memory>

namespace lockcore {
namespace {

constexpr std::string_view changed_reply = "CHANGED ";

/// Returns 0 if the text is no number.
std::uint64_t parse_epoch(std::string_view text) {
    std::uint64_t out = 0;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
}

}  // namespace

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
    ctx_.answer(a.call, result<floor_announcement>(a.outcome));
}

void core::on(input::announce_floor what) {
    ctx_.learn_epoch(what.floor.value);
    const auto a = std::make_shared<announcement>();
    a->call = what.call;
    a->unanswered = 1;  // until all requests are sent
    const auto one_answered = [this, a] {
        if (--a->unanswered == 0) end_announcement(*a);
    };
    for (const auto& link : links_) {
        if (!link->is_identified()) continue;
        ++a->unanswered;
        node_request::announce request{link->run_id(), what.floor, link->floor_epoch()};
        const auto on_answer = [a, one_answered, &node = *link, floor = what.floor.value](node_response::any response) {
            const auto& reply = std::get<node_response::text>(response);
            const bool is_admitted = reply.value == "ADMITTED";
            if (is_admitted) ++a->admitted;
            if (is_admitted || reply.value == "OK") {
                ++a->accepted;
                node.floor_seen(floor);
            } else if (reply.value.starts_with(changed_reply)) {
                a->outcome.changed = true;
                node.floor_seen(epoch{parse_epoch(std::string_view(reply.value).substr(changed_reply.size()))});
            } else if (reply.refusal.empty()) {
                // An implausible epoch counts as no answer.
                const epoch behind{parse_epoch(reply.value)};
                if (behind <= node.highest_plausible_epoch())
                    a->outcome.too_close = std::max(a->outcome.too_close, behind);
            }
            one_answered();
        };
        link->ask(std::move(request), on_answer);
    }
    // A connection that is lost answers nothing.
    ctx_.timers.set(ctx_.now.monotonic + settings_.node_dead_after, [this, a] { end_announcement(*a); });
    one_answered();
}

void core::on(const input::raise_hints& what) {
    floor_ = std::max(floor_, what.floor);
    ctx_.learn_epoch(what.floor);
}

}  // namespace lockcore
