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

awaitable<result<void>> lease_seal::prepare(bool may_have_other_holds) {
    precedes_release_ = true;
    if (!may_have_other_holds) co_return result<void>{};
    const auto closing = co_await ports_.close_to_new_holds(claims_);
    if (closing) {
        precedes_release_ = closing->closed;
        if (closing->closed) closed_ = *closing;
    } else if (closing.error().code != lockcore::errc::lease_lost) {
        precedes_release_ = false;
        co_return to_failure(closing.error());
    }
    co_return result<void>{};
}

awaitable<result<void>> lease_seal::seal(std::chrono::steady_clock::time_point until) {
    if (!precedes_release_) co_return result<void>{};
    const auto raised = co_await ports_.raise_above(claims_, initiator_, until);
    if (!raised) abandon(raised.error());
    co_return raised;
}

void lease_seal::abandon(const failure& cause) {
    if (closed_ && !cause.outcome_unknown) ports_.reopen(claims_, *closed_);
}

awaitable<bool> lease_seal::seal_released(std::chrono::steady_clock::time_point until) {
    const auto sealed = co_await ports_.raise_above(claims_, initiator_, until);
    if (!sealed) {
        spdlog::warn("token {} of {} {} sealed after the release of its lease: {}", lockcore::value_of(claims_.token),
                     claims_.resources.front().str(), sealed.error().outcome_unknown ? "may not have been" : "was not",
                     sealed.error().detail);
    }
    co_return sealed.has_value();
}

}  // namespace fencegate::api
