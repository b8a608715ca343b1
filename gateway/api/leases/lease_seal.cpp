#include <gateway/api/leases/lease_seal.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <spdlog/spdlog.h>

#include <utility>

namespace fencegate::api {

using boost::asio::awaitable;

awaitable<lockcore::result<lockcore::close_outcome>> gateway_seal_ports::close_to_new_holds(
    lockcore::lease_claims claims) {
    return locks_.close_to_new_holds(std::move(claims));
}

void gateway_seal_ports::reopen(lockcore::lease_claims claims, lockcore::close_outcome closed) {
    locks_.reopen(std::move(claims), closed);
}

awaitable<result<void>> gateway_seal_ports::raise_above(lockcore::lease_claims claims, actor initiator,
                                                        std::chrono::steady_clock::time_point until) {
    const lockcore::fencing_token past{lockcore::value_of(claims.token) + 1};
    const auto raised =
        co_await database_.raise_fences(std::move(claims.resources), past, std::move(initiator), "seal", until);
    if (!raised) co_return raised.error();
    co_return result<void>{};
}

awaitable<result<lease_seal>> lease_seal::prepare(seal_ports& ports, lockcore::lease_claims claims,
                                                  bool may_have_other_holds) {
    lease_seal prepared(ports, std::move(claims));
    if (!may_have_other_holds) co_return prepared;
    const auto closing = co_await ports.close_to_new_holds(prepared.claims_);
    if (closing) {
        prepared.is_last_hold_ = closing->closed;
        if (closing->closed) prepared.closed_ = *closing;
    } else if (closing.error().code != lockcore::errc::lease_lost) {
        co_return to_failure(closing.error());
    }
    co_return prepared;
}

awaitable<result<void>> lease_seal::raise_fences(actor initiator, std::chrono::steady_clock::time_point until) {
    const auto raised = co_await ports_.raise_above(claims_, std::move(initiator), until);
    if (!raised) abandon(raised.error());
    co_return raised;
}

void lease_seal::abandon(const failure& cause) {
    if (closed_ && !cause.outcome_unknown) ports_.reopen(claims_, *closed_);
}

awaitable<bool> seal_after_release(seal_ports& ports, lockcore::lease_claims claims, actor initiator,
                                   std::chrono::steady_clock::time_point until) {
    const auto sealed = co_await ports.raise_above(claims, std::move(initiator), until);
    if (!sealed) {
        spdlog::warn("token {} of {} {} sealed after the release of its lease: {}", lockcore::value_of(claims.token),
                     claims.resources.front().str(), sealed.error().outcome_unknown ? "may not have been" : "was not",
                     sealed.error().detail);
    }
    co_return sealed.has_value();
}

}  // namespace fencegate::api
