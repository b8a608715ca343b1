#include <gateway/api/writes/guarded_write.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/routes.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/audit/storage_watch.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/runtime/random.hpp>

#include <spdlog/spdlog.h>
#include <lockcore/lock_manager.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

write_request make_write(write_context& context, const lockcore::lease_claims& claims) {
    write_request out;
    out.write_id = runtime::uuid_v7();
    out.initiator = make_actor(claims, context.request);
    out.resources = claims.resources;
    out.token = claims.token;
    out.shared = claims.shared;
    out.operations = std::move(context.call.operations);
    out.return_rows = context.call.return_rows;
    out.select = std::move(context.call.select);
    out.format = context.call.format;
    out.bare_token = context.caller_claims && context.call.lease_id.empty();
    out.key = context.key;
    out.identity = context.request.rights->database();
    return out;
}

awaitable<bool> cancelled() {
    co_return (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
}

/// The answer to a one-shot write that was cancelled before it wrote.
failure stopped_failure() {
    return make_failure(errc::shutting_down, "The call was cancelled; nothing was written.");
}

pg::deadline deadline_of(const one_shot_write& write) {
    return write.context.request.deadline + write.wait_max;
}

/// Runs acquire() so that a cancellation and an exception end it as an answer: another write may have taken this one.
awaitable<result<lockcore::lease>> acquire_own_lease(write_ports& ports, lockcore::acquire_request wanted) {
    co_await asio::this_coro::throw_if_cancelled(false);
    try {
        co_return co_await ports.acquire(std::move(wanted));
    } catch (const std::exception& e) {
        spdlog::error("the lease of a write could not be acquired: {}", e.what());
    }
    co_return make_failure(errc::internal_error, "The lease could not be acquired; nothing was written.");
}

/// Writes all of a group in one transaction, which also seals the token if all of them end in it.
awaitable<std::vector<result<pg::committed_write>>> write_all(write_ports& ports, std::vector<pg::timed_write> writes) {
    if (writes.size() > 1) co_return co_await ports.write_together(std::move(writes));
    auto written = co_await ports.write(std::move(writes.front().request), writes.front().until);
    std::vector<result<pg::committed_write>> out;
    out.push_back(std::move(written));
    co_return out;
}

/// Seals the token of a group that was written without a seal.
awaitable<void> seal_group(write_ports& ports, const lockcore::lease_claims& claims, const one_shot_write& last,
                           std::vector<result<pg::committed_write>>& written) {
    const auto unsealed = [](const auto& each) { return each && !each->outcome.sealed; };
    if (std::ranges::none_of(written, unsealed)) co_return;
    actor initiator = make_actor(claims, last.context.request);
    const bool sealed = co_await seal_after_release(ports.seals(), claims, std::move(initiator), deadline_of(last));
    if (!sealed) co_return;
    for (auto& each : written) {
        if (unsealed(each)) each->outcome.sealed = true;
    }
}

/// Releases a lease whose writes have their answers. If that throws, as without memory, the lease expires.
awaitable<release_report> release_or_expire(write_ports& ports, const lockcore::lease_claims& claims,
                                            const std::string& origin) {
    try {
        co_return co_await ports.release(claims, origin);
    } catch (const std::exception& e) {
        spdlog::error("a lease was not released after its write: {}", e.what());
    }
    co_return release_report();
}

/// Writes a group under the lease that one of it was granted, releases the lease as soon as others can see the writes,
/// and sets the answers.
awaitable<void> write_group(write_ports& ports, const lockcore::lease& granted,
                            const std::vector<one_shot_ptr>& group) {
    const auto& origin = group.front()->context.request.origin;
    const auto prepared = co_await lease_seal::prepare(ports.seals(), granted.claims, granted.reentrant);
    if (!prepared) {
        co_await release_or_expire(ports, granted.claims, origin);
        for (const auto& each : group)
            each->answer = one_shot_answer{prepared.error()};
        co_return;
    }
    std::vector<pg::timed_write> writes;
    std::vector<std::string> ids;
    // All of a group are answered together, and end with the lease, so that others get their turn.
    auto until = deadline_of(*group.front());
    if (group.size() > 1) until = std::min(until, std::chrono::steady_clock::now() + granted.validity);
    for (const auto& each : group)
        until = std::min(until, deadline_of(*each));
    for (const auto& each : group) {
        auto& write = writes.emplace_back(pg::timed_write{make_write(each->context, granted.claims), until});
        write.request.seal = prepared->is_last_hold();
        ids.push_back(write.request.write_id);
    }
    const auto began = std::chrono::steady_clock::now();
    const bool waits_later = writes.size() > 1;  // until what an answer reveals is on disk; write() waits itself
    auto written = co_await write_all(ports, std::move(writes));
    // A write may still be committed, and the next holder must see it. So the lease is not released but expires.
    const bool unknown =
        std::ranges::any_of(written, [](const auto& each) { return !each && each.error().outcome_unknown; });
    release_report release;
    if (!unknown) release = co_await release_or_expire(ports, granted.claims, origin);
    if (release.released) co_await seal_group(ports, granted.claims, *group.back(), written);
    for (std::size_t i = 0; i < group.size(); ++i) {
        if (!written[i]) written[i] = add_write_id(written[i].error(), ids[i]);
        std::optional<std::chrono::steady_clock::time_point> unproven;
        if (waits_later && pg::reveals_unproven_data(written[i])) unproven = began;
        group[i]->answer = one_shot_answer{std::move(written[i]), release, unproven};
    }
}

/// Writes a group as write_group does, and answers the writes that `self` has taken, also where that throws.
awaitable<void> write_and_notify(write_ports& ports, lockcore::lease granted, std::vector<one_shot_ptr> group,
                                 one_shot_ptr self) {
    const auto notify = [&] {
        for (const auto& each : group) {
            if (each != self) each->notify();
        }
    };
    try {
        co_await write_group(ports, granted, group);
    } catch (...) {
        failure why = make_failure(errc::internal_error, "The writes that shared a lease failed.");
        why.outcome_unknown = true;
        for (const auto& each : group)
            each->answer = one_shot_answer{why};
        notify();
        throw;
    }
    notify();
}

/// Acquires a lease and writes under it, unless another write that was granted the lease takes this one.
///
/// Out: the answer; empty: the caller hung up before.
awaitable<std::optional<one_shot_answer>> acquire_and_write(write_ports& ports, waiting_writes& waiting,
                                                            one_shot_ptr self) {
    if (co_await cancelled()) co_return std::nullopt;
    // A hang-up ends the acquisition and nothing else, and that only while no other write has taken this one.
    const auto end_acquisition = [&waiting, self](asio::cancellation_type type) {
        if (waiting.withdraw(*self)) self->end_acquisition.emit(type);
        return type;
    };
    co_await asio::this_coro::reset_cancellation_state(end_acquisition, asio::disable_cancellation());
    const waiting_writes::registration registered(waiting, self);
    lockcore::acquire_request wanted = std::move(*self->context.call.own_lease);
    wanted.closed = !wanted.holder.owner.empty();  // no hold may join a lease that is sealed at once
    auto acquiring = acquire_own_lease(ports, std::move(wanted));
    const auto executor = co_await asio::this_coro::executor;
    auto token = asio::bind_cancellation_slot(self->end_acquisition.slot(), asio::use_awaitable);
    auto granted = co_await asio::co_spawn(executor, std::move(acquiring), std::move(token));
    // From here on the lease has to be released, also if the caller hangs up.
    const bool caller_gone = co_await cancelled();
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    const bool taken = !waiting.withdraw(*self);
    if (granted && (taken || caller_gone))
        co_await release_or_expire(ports, granted->claims, self->context.request.origin);
    if (taken) {
        co_await self->await_answer();
        co_return std::move(self->answer);
    }
    if (caller_gone) co_return std::nullopt;
    if (!granted) co_return one_shot_answer{granted.error()};
    auto group = waiting.take_group(self);
    co_await write_and_notify(ports, std::move(*granted), std::move(group), self);
    co_return std::move(self->answer);
}

/// Writes under a lease of the caller, and seals its token with the write if the lease is released.
///
/// Out: the outcome, which is on disk.
awaitable<result<write_outcome>> write_under_lease(write_ports& ports, write_context& context,
                                                   const lockcore::lease_claims& claims) {
    write_request request = make_write(context, claims);
    std::optional<lease_seal> seal;
    if (context.call.then_release) {
        auto prepared = co_await lease_seal::prepare(ports.seals(), claims, claims.may_be_shared);
        if (!prepared) co_return prepared.error();
        seal.emplace(std::move(*prepared));
        request.seal = seal->is_last_hold();
    }
    const std::string write_id = request.write_id;
    auto written = co_await ports.write(std::move(request), context.request.deadline);
    std::optional<failure> failed;
    if (!written) {
        failed = written.error();
    } else if (written->durability) {
        failed = co_await written->durability->wait();
    }
    if (!failed) co_return std::move(written->outcome);
    if (seal) seal->abandon(*failed);
    co_return add_write_id(std::move(*failed), write_id);
}

awaitable<result<write_report>> execute_one_shot(write_ports& ports, waiting_writes& waiting, write_context context) {
    write_report report;
    report.own_lease = true;
    if (context.key) {  // before it asks the nodes
        auto found = co_await ports.find_outcome(context.request.principal, *context.key, context.request.deadline);
        if (!found) co_return found.error();
        if (*found) {
            report.outcome = std::move(**found);
            report.release.emplace().released = true;
            co_return report;
        }
    }
    const auto executor = co_await asio::this_coro::executor;
    const auto until = context.request.deadline + context.call.own_lease->wait;
    auto self = std::make_shared<one_shot_write>(executor, std::move(context));
    auto answer = co_await acquire_and_write(ports, waiting, std::move(self));
    if (!answer) co_return stopped_failure();
    if (answer->unproven_since) {
        const auto why = co_await ports.require_durable(*answer->unproven_since, until);
        if (why) co_return *why;
    }
    if (!answer->written) co_return answer->written.error();
    report.outcome = std::move(answer->written->outcome);
    report.release = answer->release;
    if (answer->written->durability) {
        const auto lost = co_await answer->written->durability->wait();
        if (lost) co_return add_write_id(*lost, report.outcome.write_id);
    }
    co_return report;
}

/// Connects the write service to the gateway's lock manager and database.
class service_ports final : public write_ports {
  public:
    service_ports(const write_services& services, std::shared_ptr<limits::caller> caller,
                  const boost::asio::ip::address& peer)
        : services_(services), seals_(services.locks, services.database), caller_(std::move(caller)), peer_(peer) {}

    awaitable<result<std::optional<write_outcome>>> find_outcome(std::string principal, idempotency_key key,
                                                                 time_point until) override {
        return services_.database.writes().kept_outcomes().find(std::move(principal), std::move(key), until);
    }
    awaitable<result<pg::committed_write>> write(write_request request, time_point until) override {
        return services_.database.writes().write(std::move(request), until);
    }
    awaitable<std::vector<result<pg::committed_write>>> write_together(std::vector<pg::timed_write> writes) override {
        return services_.database.writes().write_together(std::move(writes));
    }
    awaitable<std::optional<failure>> require_durable(time_point server_ran_at, time_point until) override {
        return services_.database.writes().require_durable(server_ran_at, until);
    }
    seal_ports& seals() override { return seals_; }
    awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) override {
        const auto admitted = admit_acquisition(services_.leases, caller_, peer_, request);
        if (!admitted) co_return admitted.error();
        auto granted = co_await services_.locks.acquire(std::move(request));
        if (granted) co_return std::move(*granted);
        failure why = to_failure(granted.error());
        if (why.code == errc::resource_locked) why.facts["max_wait_ms"] = services_.settings.protocol.max_wait.count();
        co_return why;
    }
    awaitable<result<void>> require_live(lockcore::lease_claims claims) override {
        const auto seen = co_await services_.locks.inspect(std::move(claims));
        if (!seen) co_return to_failure(seen.error());
        co_return result<void>();
    }
    awaitable<release_report> release(lockcore::lease_claims claims, std::string origin) override {
        const auto released = co_await services_.locks.release(std::move(claims), std::move(origin));
        release_report out;
        if (released) out.holds_left = released->holds_left;
        const bool lost =
            !released && released.error().code == lockcore::errc::lease_lost;  // a majority has it no more
        out.released = released ? out.holds_left == 0 : lost;
        co_return out;
    }

  private:
    const write_services& services_;
    gateway_seal_ports seals_;
    std::shared_ptr<limits::caller> caller_;
    boost::asio::ip::address peer_;
};

/// Refuses the options that need a lease, for a write with a bare token.
result<void> check_bare_token(const write_call& call) {
    http::fault_list faults;
    if (call.require_live) faults.add("/require_live", "needs a lease");
    if (call.then_release) faults.add("/then", "needs a lease");
    if (!faults.empty()) return std::move(faults).to_failure();
    return {};
}

/// Checks that the caller may use every table and function that the write names.
result<void> check_exposed(const write_call& call, const http::rights& rights) {
    const auto name_of = [](const auto& given) -> const std::string& {
        if constexpr (requires { given.function; }) {
            return given.function;
        } else {
            return given.table;
        }
    };
    for (const operation& each : call.operations) {
        const auto allowed = rights.require_exposed(std::visit(name_of, each));
        if (!allowed) return allowed.error();
    }
    return {};
}

/// Checks a write before it asks the nodes or PostgreSQL anything, and returns its context.
result<write_context> prepare_write(const write_services& services, write_call call, http::request r) {
    write_context out;
    const auto exposed = check_exposed(call, *r.rights);
    if (!exposed) return exposed.error();
    if (call.own_lease) {
        for (const scope needed : {scope::leases, scope::writes}) {
            const auto allowed = r.rights->require(needed, lockcore::all_resources(*call.own_lease));
            if (!allowed) return allowed.error();
        }
    } else {
        auto claims = open_lease_or_token(services.locks, call.lease_id, r);
        if (!claims) return claims.error();
        const auto fits = call.lease_id.empty() ? check_bare_token(call) : result<void>();
        if (!fits) return fits.error();
        out.caller_claims = std::move(*claims);
    }
    if (!call.own_lease && out.caller_claims->resources.empty())
        return make_failure(errc::shared_lease, "Under a shared lease nothing can be written; nothing was changed.");
    if (!call.idempotency_key.empty()) {
        out.key = make_idempotency_key(call.idempotency_key, r, call.fingerprint_text, call.accepted_form,
                                       services.settings.writes.idempotency_ttl);
        std::string().swap(call.fingerprint_text);
        out.running = services.keys.enter(r.principal, call.idempotency_key);
        if (!out.running) {
            return make_failure(errc::idempotency_in_progress,
                                "A call with this Idempotency-Key is still under way; nothing was done by this one.");
        }
    }
    out.call = std::move(call);
    out.request = std::move(r);
    // What is parsed is not in memory twice while the write waits. An assignment of {} would keep the memory.
    std::string().swap(out.request.body);
    out.request.headers = {};
    return out;
}

}  // namespace

awaitable<result<write_report>> execute_write(write_ports& ports, waiting_writes& waiting, write_context context) {
    if (context.call.own_lease) co_return co_await execute_one_shot(ports, waiting, std::move(context));
    const lockcore::lease_claims claims = *context.caller_claims;
    const bool releases = context.call.then_release;
    write_report report;
    std::optional<write_outcome> earlier;
    if (context.key && context.call.require_live) {  // before it asks the nodes
        auto found = co_await ports.find_outcome(context.request.principal, *context.key, context.request.deadline);
        if (!found) co_return found.error();
        earlier = std::move(*found);
    }
    if (context.call.require_live && !earlier) {
        const auto live = co_await ports.require_live(claims);
        if (!live) co_return live.error();
    }
    if (earlier) {
        report.outcome = std::move(*earlier);
    } else {
        auto written = co_await write_under_lease(ports, context, claims);
        if (!written) co_return written.error();
        report.outcome = std::move(*written);
    }
    if (!releases) co_return report;
    // Only now, so that the caller still has the lease if a crash loses the write.
    report.release = co_await release_or_expire(ports, claims, context.request.origin);
    // The outcome may be that of an earlier call under another lease.
    if (report.outcome.token != claims.token) report.outcome.sealed = false;
    if (report.release->released && !report.outcome.sealed) {
        actor initiator = make_actor(claims, context.request);
        report.outcome.sealed =
            co_await seal_after_release(ports.seals(), claims, std::move(initiator), context.request.deadline);
    }
    co_return report;
}

awaitable<result<write_report>> run_write(const write_services& services, write_call call, http::request r) {
    service_ports ports(services, r.caller, r.peer);
    const auto storage = services.storage.check();
    if (!storage) co_return storage.error();
    auto context = prepare_write(services, std::move(call), std::move(r));
    if (!context) co_return context.error();
    // Only the wait for a lease of its own can be cancelled.
    if (!context->call.own_lease) co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    const auto claims = context->caller_claims;
    const auto resources = claims ? claims->resources : context->call.own_lease->resources;
    actor initiator;
    initiator.principal = context->request.principal;
    initiator.owner = claims ? claims->holder.owner : context->call.own_lease->holder.owner;
    set_origin(initiator, context->request.origin);
    auto done = co_await execute_write(ports, services.waiting, std::move(*context));
    if (!done) {
        const failure refusal = done.error();
        if (refusal.replayed) record_replay(services.leases.events, std::move(initiator), resources, nullptr, &refusal);
    } else if (done->outcome.replayed) {
        record_replay(services.leases.events, std::move(initiator), resources, &done->outcome, nullptr);
    }
    if (done && !done->outcome.replayed)
        services.storage.acknowledged().add(done->outcome.write_id, std::chrono::steady_clock::now());
    co_return done;
}

void add_replayed_header(http::response& answer, const write_report& done) {
    if (done.outcome.replayed) answer.headers.emplace_back("Idempotency-Replayed", "true");
}

http::awaitable_response apply_write(const write_services& services, http::request r) {
    auto call = parse_write_body(r, services.settings.protocol);
    if (!call) co_return call.error();
    const auto done = co_await run_write(services, std::move(*call), std::move(r));
    if (!done) co_return done.error();
    http::response answer = http::json_response(render_write(*done));
    add_replayed_header(answer, *done);
    co_return answer;
}

}  // namespace fencegate::api
