#pragma once

#include <gateway/domain/actor.hpp>
#include <gateway/domain/failure.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <optional>
#include <utility>

namespace lockcore {
class lock_manager;
}
namespace fencegate::pg {
class database;
}

namespace fencegate::api {

/// What a seal needs of the leases and of the fences; an interface, so that a test can make each call fail.
class seal_ports {
  public:
    virtual ~seal_ports() = default;

    /// See lockcore::lock_manager.
    virtual boost::asio::awaitable<lockcore::result<lockcore::close_outcome>> close_to_new_holds(
        lockcore::lease_claims claims) = 0;
    virtual void reopen(lockcore::lease_claims claims, lockcore::close_outcome closed) = 0;
    /// Raises the fences of the resources above the token. Errors: those of pg::database::raise_fences.
    virtual boost::asio::awaitable<result<void>> raise_above(lockcore::lease_claims claims, actor initiator,
                                                             std::chrono::steady_clock::time_point until) = 0;
};

/// The leases and fences of the gateway.
///
/// Lifetime: `locks` and `database` outlive it.
class gateway_seal_ports final : public seal_ports {
  public:
    gateway_seal_ports(lockcore::lock_manager& locks, pg::database& database) : locks_(locks), database_(database) {}

    boost::asio::awaitable<lockcore::result<lockcore::close_outcome>> close_to_new_holds(
        lockcore::lease_claims claims) override;
    void reopen(lockcore::lease_claims claims, lockcore::close_outcome closed) override;
    boost::asio::awaitable<result<void>> raise_above(lockcore::lease_claims claims, actor initiator,
                                                     std::chrono::steady_clock::time_point until) override;

  private:
    lockcore::lock_manager& locks_;
    pg::database& database_;
};

/// The seal of a token, prepared for the release of one hold of its lease: the fences are raised above the token, so
/// that its holder can write no more and the next holder can. While other holds are left, the token is not sealed,
/// because they still write with it.
///
/// Order:    prepare(). If is_last_hold(): raise_fences(), or the transaction of a write seals the token, which may
///           fail: abandon(). Then the release of the hold. If the token is not sealed by then, and no hold is left:
///           seal_after_release().
/// Lifetime: `ports` outlive it.
class lease_seal {
  public:
    /// Finds out whether the hold is the last one. Where others are possible (`may_have_other_holds`), it closes the
    /// lease to further ones if there is none; a lease that a majority has lost has none.
    ///
    /// Errors: errc::no_quorum: nothing was done.
    static boost::asio::awaitable<result<lease_seal>> prepare(seal_ports& ports, lockcore::lease_claims claims,
                                                              bool may_have_other_holds);

    /// Returns whether no other hold is left, so that the token has to be sealed before this one is released.
    bool is_last_hold() const { return is_last_hold_; }
    /// Seals the token. Abandons the seal if that fails.
    ///
    /// Errors: those of seal_ports::raise_above.
    boost::asio::awaitable<result<void>> raise_fences(actor initiator, std::chrono::steady_clock::time_point until);
    /// Opens the lease again after a seal that failed for `cause`, so that its holder continues. Not where that may
    /// have sealed the token: the lease accepts no further holds then, whose writes would be refused.
    void abandon(const failure& cause);

  private:
    lease_seal(seal_ports& ports, lockcore::lease_claims claims) : ports_(ports), claims_(std::move(claims)) {}

    seal_ports& ports_;
    lockcore::lease_claims claims_;
    bool is_last_hold_ = true;
    std::optional<lockcore::close_outcome> closed_;  ///< Set if prepare() has closed the lease.
};

/// Seals the token of a lease of which no hold is left: the other holds may have been released after prepare() found
/// them. Logs a failure, because the release has succeeded.
///
/// Out: whether the token is sealed. False also if that is unknown.
boost::asio::awaitable<bool> seal_after_release(seal_ports& ports, lockcore::lease_claims claims, actor initiator,
                                                std::chrono::steady_clock::time_point until);

}  // namespace fencegate::api
