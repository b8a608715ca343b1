// The floor of a change of the storage generation (docs/protocol.md, STORAGE GENERATION).
#include <proto/core.hpp>

#include <lockcore/types.hpp>
#include <proto/epochs.hpp>

#include <algorithm>
#include <charconv>
#include <memory>

namespace lockcore {
namespace {

live_lease make_live_lease(const survey& found, const resource_name& resource) {
    live_lease out;
    const lease_record& record = *found.lease();
    out.claims.attempt_id = record.attempt_id;
    out.claims.token = record.token;
    out.claims.holder = record.holder;
    out.claims.granted_at = record.granted_at;
    out.claims.resources = record.resources;
    out.claims.shared = record.shared;
    if (record.resources.empty() && record.shared.empty()) out.claims.resources = {resource};
    out.hold_count = static_cast<std::uint32_t>(record.holds.count());
    out.renewals = record.renewals;
    out.remaining = found.remaining();
    out.nodes_granted = found.nodes_holding();
    return out;
}

}  // namespace

core::core(const services& provided)
    : settings_(provided.settings),
      ctx_(provided.settings, provided.mac, provided.random),
      wake_mark_(nonce::from_bits(provided.random.next(), 0).str().substr(0, 16)),
      links_(make_links(provided.leads)),
      queues_(ctx_, [this](call_id call) { continue_wait(*acquiring_.at(call)); }),
      rounds_(ctx_, links_, wake_mark_, validities_, queues_),
      kept_(ctx_, rounds_) {}

core::~core() = default;

std::vector<std::unique_ptr<node_link>> core::make_links(bool leads) {
    const cluster_view& nodes = *this;
    std::vector<std::unique_ptr<node_link>> links;
    for (std::size_t n = 0; n < settings_.nodes.size(); ++n)
        links.push_back(std::make_unique<node_link>(ctx_, static_cast<node_index>(n), nodes, leads));
    return links;
}

std::vector<core_action> core::step(core_input&& what, const step_time& now) {
    ctx_.now = now;
    std::visit([this](auto& input) { on(std::move(input)); }, what);
    ctx_.run_step_end_calls();
    return std::exchange(ctx_.actions, {});
}

// --- time

void core::on(const input::start&) {
    for (const auto& link : links_)
        link->start();
}

void core::on(const input::stop&) {
    for (const auto& link : links_)
        link->stop();
}

void core::on(const input::tick&) {
    for (const auto& link : links_)
        link->tick();
    rounds_.tick();
    if (ctx_.now.monotonic < sweep_at_) return;
    sweep_at_ = ctx_.now.monotonic + sweep_interval;
    validities_.forget_expired(ctx_.now.validity);
    queues_.forget_expired();
}

void core::on(const input::timer&) {
    ctx_.timers.run_due(ctx_.now.monotonic);
}

void core::on(const input::flush&) {
    ctx_.needs_flush = false;
    const bool decided = ctx_.run_flush_calls();
    ctx_.run_step_end_calls();
    // Commands that were queued meanwhile are sent with those of the next flush, so that fewer, larger batches are
    // sent.
    if (decided && !std::exchange(sending_delayed_, true)) {
        ctx_.needs_flush = true;
        return;
    }
    sending_delayed_ = false;
    for (const auto& link : links_)
        link->flush();
}

// --- answers

void core::on(const input::connected& what) {
    links_[value_of(what.node)]->connected(what);
}

void core::on(const input::disconnected& what) {
    links_[value_of(what.node)]->disconnected(what);
}

void core::on(input::batch_answered what) {
    node_link& link = *links_[value_of(what.node)];
    link.batch_answered(std::move(what));
}

void core::on(input::node_answered what) {
    node_link& link = *links_[value_of(what.node)];
    link.node_answered(std::move(what));
}

void core::on(input::register_answered what) {
    ctx_.register_answered(std::move(what));
}

void core::on(const input::lease_ended& what) {
    queues_.lease_ended(what);
    validities_.lease_ended(what.ended);
    kept_.lease_ended(what.ended, !what.revoked);
}

// --- calls about a lease

void core::on(input::renew what) {
    rounds_.renew(std::move(what.claims), what.ttl, std::move(what.origin), false,
                  [this, call = what.call](result<lease> outcome) { ctx_.answer(call, std::move(outcome)); });
}

void core::on(input::inspect what) {
    rounds_.inspect(std::move(what.claims), [this, call = what.call](result<lease> outcome, const auto&) {
        ctx_.answer(call, std::move(outcome));
    });
}

void core::on(input::keep what) {
    kept_.keep(std::move(what));
}

void core::on(input::watch what) {
    kept_.watch(std::move(what));
}

void core::on(const input::cancel& what) {
    if (const auto found = acquiring_.find(what.call); found != acquiring_.end()) {
        acquire_call& c = *found->second;
        c.cancelled = true;
        if (c.waiter) continue_wait(c);
    }
    kept_.cancel(what.call);
}

void core::on(const input::refuse_new_leases&) {
    refusing_ = true;
    queues_.wake_all();
}

// --- reading leases

void core::on(input::find_lease what) {
    const link_span links(links_);
    const std::size_t first = what.only ? value_of(*what.only) : 0;
    const link_span asked = what.only ? links.subspan(first, 1) : links;
    lease_call wanted;
    wanted.resources = {std::move(what.resource)};
    if (what.sharing) {
        wanted.shared = 1;
        wanted.attempt_id = *what.sharing;
    } else {
        wanted.tail = "*";
    }
    const auto attempt = std::make_shared<survey_attempt>(ctx_, std::move(wanted), asked, first);
    attempt->start([this, call = what.call](const survey_attempt& found) {
        using answer_type = result<found_lease>;
        found_lease out;
        switch (found.machine().outcome()) {
            case survey::verdict::found:
                out.lease = make_live_lease(found.machine(), found.call().resources.front());
                return ctx_.answer(call, answer_type(std::move(out)));
            case survey::verdict::shared:
                out.sharing = found.machine().sharing();
                return ctx_.answer(call, answer_type(std::move(out)));
            case survey::verdict::none:
                return ctx_.answer(call, answer_type(std::move(out)));
            case survey::verdict::occupied:
                return ctx_.answer(
                    call, answer_type(occupied_by_another_value(found.answers(), found.machine().occupied(), "")));
            default:
                return ctx_.answer(call, answer_type(make_no_quorum("Too few Redis nodes answered.", found.answers())));
        }
    });
}

failure core::occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                        const std::string& bound) {
    failure f = make_failure(errc::resource_locked, "A value that is no lease occupies the resource's key on " + bound +
                                                        std::to_string(nodes.count()) + " of " +
                                                        std::to_string(answers.size()) + " nodes.");
    for (std::size_t n = 0; n < answers.size(); ++n) {
        if (nodes.test(n)) answers[n].answer = "occupied by another value";
    }
    f.answers = std::move(answers);
    return f;
}

void core::on(input::list what) {
    const auto listing = std::make_shared<list_attempt>(ctx_, std::move(what.cursor), std::move(what.pattern),
                                                        *links_[value_of(what.node)]);
    listing->start([this, call = what.call](const list_attempt& listed) {
        if (listed.part()) return ctx_.answer(call, result<list_part>(*listed.part()));
        ctx_.answer(call, result<list_part>(make_no_quorum("The node did not list its leases.", {})));
    });
}

// --- nodes

std::string core::find_duplicate(node_index node, const std::string& run_id) const {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        // Of two nodes that are one server, the one that already votes stays a voter.
        if (n != value_of(node) && !run_id.empty() && links_[n]->run_id() == run_id && links_[n]->is_voting())
            return links_[n]->name();
    }
    return {};
}

epoch core::highest_epoch() const {
    epoch highest{};
    for (const auto& link : links_)
        highest = std::max(highest, link->observed_epoch());
    return highest;
}

epoch core::highest_plausible_epoch(node_index node) const {
    if (links_.size() == 1) return epoch{epochs_max - 1};  // there is nothing to compare with
    epoch others{};
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (n != value_of(node)) others = std::max(others, links_[n]->claimed_epoch());
    }
    return lockcore::highest_plausible_epoch(others, ctx_.known_epoch);
}

std::vector<fast_readmission::source> core::find_sources(node_index node, std::size_t failed_tries) const {
    const std::size_t enough = links_.size() - majority_of(links_.size()) + 1;
    const std::size_t wanted = failed_tries == 0 ? links_.size() : enough;
    std::vector<fast_readmission::source> out;
    for (std::size_t i = 0; i < links_.size() && out.size() < wanted; ++i) {
        const std::size_t n = (failed_tries + i) % links_.size();
        if (n == value_of(node) || !links_[n]->is_voting()) continue;
        const auto ask = [link = links_[n].get()](node_request::any request,
                                                  std::function<void(node_response::any)> then) {
            link->ask(std::move(request), std::move(then));
        };
        out.push_back({links_[n]->run_id(), ask});
    }
    if (out.size() < enough) out.clear();
    return out;
}

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
