#include <proto/core.hpp>

#include <proto/epochs.hpp>
#include <proto/failures.hpp>

#include <algorithm>

namespace lockcore {
namespace {

live_lease make_live_lease(const survey& found, const resource_name& resource) {
    live_lease out;
    const lease_record& record = *found.lease();
    out.claims.attempt_id = record.attempt_id;
    out.claims.token = record.token;
    out.claims.holder = record.holder;
    out.claims.granted_at = record.granted_at;
    out.claims.resources = record.resources.empty() ? std::vector{resource} : record.resources;
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
      queues_(ctx_, [this](call_id call) { poll(*acquiring_.at(call)); }),
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
    // Commands that were queued meanwhile are sent with those of the next flush, so that fewer, larger batches are sent.
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
    rounds_.renew(std::move(what.claims), what.ttl, std::move(what.trace_id), false,
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
        if (c.waiter) poll(c);
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
    const auto attempt = std::make_shared<survey_attempt>(ctx_, std::move(what.resource), asked, first);
    attempt->start([this, call = what.call](const survey_attempt& found) {
        using answer_type = result<std::optional<live_lease>>;
        switch (found.machine().outcome()) {
            case survey::verdict::found:
                return ctx_.answer(call, answer_type(make_live_lease(found.machine(), found.call().resources.front())));
            case survey::verdict::none:
                return ctx_.answer(call, answer_type(std::optional<live_lease>()));
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

}  // namespace lockcore
