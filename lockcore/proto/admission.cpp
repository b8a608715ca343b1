#include <proto/admission.hpp>

namespace lockcore {
namespace {

bool is_register_query(node_supervisor::action a) {
    return a == node_supervisor::action::find_record || a == node_supervisor::action::draw_epoch ||
           a == node_supervisor::action::note_unsynced;
}

}  // namespace

admission::admission(core_context& ctx, node_index index, node_transport& transport, const cluster_view& others,
                     bool leads)
    : ctx_(ctx),
      index_(index),
      transport_(transport),
      others_(others),
      leads_(leads),
      supervisor_(ctx.settings.max_ttl, leads) {}

void admission::start() {
    stopped_ = false;
    perform({node_supervisor::action::connect, milliseconds{0}});
}

void admission::stop() {
    stopped_ = true;
    copying_.reset();
    ++steps_;
    supervisor_.disconnected("closed");
}

void admission::disconnected(const std::string& reason, bool refused) {
    ticks_left_ = 0;
    copying_.reset();
    failed_copies_ = 0;
    perform(refused ? supervisor_.credentials_refused(reason) : supervisor_.disconnected(reason));
}

void admission::perform(node_supervisor::step step) {
    if (const node_state state = supervisor_.state(); state != reported_state_) {
        reported_state_ = state;
        ctx_.act(action::node_changed{index_});
    }
    ++steps_;
    if (stopped_ || step.next == node_supervisor::action::vote) return;
    const auto run = [this, next = step.next, number = steps_] {
        if (!stopped_ && number == steps_) act(next);
    };
    if (step.delay <= milliseconds{0}) return ctx_.call_at_step_end(run);
    ctx_.timers.set(ctx_.now.monotonic + step.delay, run);
}

void admission::act(node_supervisor::action next) {
    if (is_register_query(next)) return query_register(next);
    switch (next) {
        case node_supervisor::action::connect:
            await_answer();
            return transport_.open();
        case node_supervisor::action::identify:
            return identify();
        case node_supervisor::action::copy_leases:
            return copy_leases();
        case node_supervisor::action::delete_admission:
            return delete_admission();
        case node_supervisor::action::readmit:
            return readmit();
        default:
            return;
    }
}

void admission::await_answer() {
    ticks_left_ =
        static_cast<std::uint64_t>(ctx_.settings.node_dead_after / core_context::tick_length(ctx_.settings)) + 1;
}

template <class Response>
void admission::ask(node_request::any request, std::function<void(Response)> then) {
    await_answer();
    transport_.ask(std::move(request), [this, then = std::move(then)](node_response::any response) {
        ticks_left_ = 0;
        then(std::get<Response>(std::move(response)));
    });
}

void admission::identify() {
    reviewed_at_ = ctx_.now.monotonic;
    ask<node_response::identified>(node_request::identify{},
                                   [this](node_response::identified found) { process_facts(std::move(found)); });
}

void admission::process_facts(node_response::identified found) {
    node_facts& facts = found.facts;
    if (!found.refusal.empty()) return perform(supervisor_.commands_refused(found.refusal));
    // A server that can't be a node need not run scripts, so that its record may be missing.
    const bool needs_record = !facts.run_id.empty() && find_misconfiguration(facts).empty();
    if (needs_record && !found.record_refusal.empty())
        return perform(supervisor_.commands_refused(found.record_refusal));
    if (facts.run_id.empty() || (needs_record && !found.has_record))
        return transport_.drop("does not answer like a Redis server: " + found.info_begin);
    if (!found.missing_scripts.empty())
        transport_.ask(node_request::load_scripts{std::move(found.missing_scripts)}, [](const node_response::any&) {});
    facts.duplicate_of = others_.find_duplicate(index_, facts.run_id);
    // The first gateway that reads these data writes a claim. Nothing is written to a server that can't be a node.
    if (!facts.is_admitted() && facts.claim.empty() && find_misconfiguration(facts).empty())
        return write_claim(std::move(facts));
    finish_identification(std::move(facts));
}

void admission::write_claim(node_facts facts) {
    const std::string claim =
        mark_cell(ctx_.settings.cell, nonce::from_bits(ctx_.random.next(), ctx_.random.next()).str());
    ask<node_response::text>(node_request::write_claim{claim},
                             [this, facts = std::move(facts)](node_response::text written) mutable {
                                 if (!written.refusal.empty())
                                     return perform(supervisor_.commands_refused(std::move(written.refusal)));
                                 facts.claim = written.value;
                                 finish_identification(std::move(facts));
                             });
}

void admission::finish_identification(node_facts facts) {
    last_answer_at_ = ctx_.now.monotonic;
    facts.other_cell = find_other_cell(facts.claim, ctx_.settings.cell);
    facts.implausible_epoch = find_implausible_epoch(facts.claimed_epoch(), highest_plausible_epoch());
    const node_state old_state = supervisor_.state();
    const auto next = supervisor_.identified(std::move(facts), ctx_.now.monotonic);
    report_quarantine(old_state);
    perform(next);
}

void admission::report(event_kind kind, const std::string& detail) {
    event e;
    e.kind = kind;
    e.at = ctx_.now.wall;
    e.detail = name() + ": " + detail;
    ctx_.record(std::move(e));
}

void admission::report_quarantine(node_state old_state) {
    if (leads_ && old_state != node_state::quarantined && supervisor_.state() == node_state::quarantined)
        report(event_kind::node_quarantined, supervisor_.detail());
}

void admission::query_register(node_supervisor::action query) {
    register_request::any asked = register_request::find{name()};
    if (query == node_supervisor::action::note_unsynced) asked = register_request::note_unsynced{name()};
    if (query == node_supervisor::action::draw_epoch)
        asked = register_request::draw{{.node_name = name(),
                                        .life = supervisor_.life(),
                                        .synced = supervisor_.facts().syncs_every_write,
                                        .highest_observed = others_.highest_epoch()}};
    ctx_.ask_register(std::move(asked), [this, number = steps_](register_response response) {
        // The answer is ignored if another step was taken meanwhile, as after the loss of the connection.
        if (stopped_ || number != steps_) return;
        if (const auto* failed = std::get_if<failure>(&response))
            return perform(supervisor_.register_failed(failed->detail));
        if (const auto* drawn = std::get_if<drawn_epoch>(&response)) {
            ctx_.learn_epoch(drawn->value);
            if (!drawn->repeated) report(event_kind::epoch_raised, "epoch " + std::to_string(value_of(drawn->value)));
            return perform(supervisor_.epoch_drawn(drawn->value));
        }
        if (const auto* record = std::get_if<node_record>(&response)) {
            ctx_.learn_epoch(record->latest_epoch);
            const node_state old_state = supervisor_.state();
            const auto next = supervisor_.record_found(*record, ctx_.now.monotonic);
            report_quarantine(old_state);
            return perform(next);
        }
        perform(supervisor_.unsynced_noted());
    });
}

void admission::copy_leases() {
    std::vector<fast_readmission::source> sources = others_.find_sources(index_, failed_copies_);
    if (sources.empty()) return perform(supervisor_.too_few_to_copy_from(ctx_.now.monotonic));
    const auto ask_node = [this](node_request::any request, std::function<void(node_response::any)> then) {
        transport_.ask(std::move(request), std::move(then));
    };
    copying_ = std::make_shared<fast_readmission>(
        ctx_, supervisor_.facts().run_id, ask_node, std::move(sources), highest_plausible_epoch(), own_mark_,
        [this](result<std::string> outcome) {
            const auto keep_alive = std::move(copying_);
            copying_ = nullptr;
            own_mark_ = keep_alive->own_mark();
            const bool failed = !outcome && !outcome.error().detail.empty();
            failed_copies_ = failed ? failed_copies_ + 1 : 0;
            perform(outcome ? supervisor_.leases_copied(std::move(*outcome), ctx_.now.monotonic)
                            : supervisor_.copying_failed(std::move(outcome.error().detail), ctx_.now.monotonic));
        });
    copying_->start();
}

void admission::delete_admission() {
    // If another gateway has readmitted the node meanwhile, this causes one more quarantine, which does no harm.
    ask<node_response::text>(node_request::delete_admission{}, [this](node_response::text deleted) {
        perform(supervisor_.admission_deleted(std::move(deleted.refusal)));
    });
}

void admission::readmit() {
    const node_facts& facts = supervisor_.facts();
    node_request::readmit request;
    request.run_id = facts.run_id;
    request.drawn = supervisor_.drawn();
    // An admitted node gets new marks only: with an empty claim READMIT cannot admit it again.
    if (!facts.is_admitted()) request.claim = facts.claim;
    request.marks = facts.marks.text;
    request.syncs_every_write = facts.syncs_every_write;
    request.mark = supervisor_.copy_mark();
    ask<node_response::text>(std::move(request), [this](const node_response::text& answer) {
        if (!answer.refusal.empty()) return perform(supervisor_.readmit_refused(answer.refusal));
        if (answer.value == "OK")
            report(event_kind::node_readmitted, "epoch " + std::to_string(value_of(supervisor_.drawn())));
        perform(supervisor_.readmit_answered(answer.value == "OK" || answer.value == "ALREADY"));
    });
}

void admission::ping() {
    ask<node_response::text>(node_request::ping{}, [this, sent_at = ctx_.now.monotonic](const node_response::text&) {
        on_answer(std::chrono::duration_cast<std::chrono::microseconds>(ctx_.now.monotonic - sent_at));
    });
}

void admission::tick(bool has_unanswered) {
    if (ticks_left_ > 0 && --ticks_left_ == 0) return transport_.drop("does not answer");
    if (copying_ && supervisor_.quarantine_left(ctx_.now.monotonic) <= milliseconds{0}) {
        copying_.reset();  // all leases that the node may have forgotten have expired meanwhile
        return perform({node_supervisor::action::identify, milliseconds{0}});
    }
    if (!is_voting() || ticks_left_ > 0) return;
    if (ctx_.now.monotonic - reviewed_at_ >= review_interval) {
        identify();
    } else if (!has_unanswered && ctx_.now.monotonic - last_answer_at_ >= ping_after) {
        ping();
    }
}

void admission::on_answer(std::chrono::microseconds latency) {
    last_answer_at_ = ctx_.now.monotonic;
    latency_ = latency;
}

void admission::on_script_error(const std::string& error) {
    if (!is_voting()) return;
    perform(error.starts_with("UNINIT") ? supervisor_.found_not_admitted() : supervisor_.commands_refused(error));
}

node_status admission::status() const {
    node_status out;
    out.name = name();
    out.address = address().host + ":" + std::to_string(address().port);
    out.state = supervisor_.state();
    out.detail = supervisor_.detail();
    out.run_id = supervisor_.facts().run_id;
    out.admitted_epoch = supervisor_.admitted_epoch();
    out.observed_epoch = observed_epoch();
    out.floor_epoch = supervisor_.facts().floor_epoch;
    out.latency = latency_;
    out.quarantine_left = supervisor_.quarantine_left(ctx_.now.monotonic);
    return out;
}

}  // namespace lockcore
