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

/// What a seal needs of the leases and of the fences; an interface, so that a test can make each step fail.
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

/// The seal of a token at the release of its lease: the fences are raised above it, so that its holder can write no
/// more and the next one can. A re-entrant lease is sealed with its last hold.
///
/// Order:    prepare(); the seal, by seal() or in the transaction of a write, or abandon(); the release; where the
///           token is not sealed by then, seal_released().
/// Lifetime: `ports` outlive it.
class lease_seal {
  public:
    lease_seal(seal_ports& ports, lockcore::lease_claims claims, actor initiator)
        : ports_(ports), claims_(std::move(claims)), initiator_(std::move(initiator)) {}

    /// Decides whether the token is sealed before the release. Where there may be other holds, closes the lease to
    /// further ones; a lease that a majority has lost has none.
    ///
    /// Errors: errc::no_quorum: nothing was done.
    boost::asio::awaitable<result<void>> prepare(bool may_have_other_holds);
    /// Returns whether the token is to be sealed before the release. False: it was not prepared, or other holds are
    /// left, which could then write no more.
    bool precedes_release() const { return precedes_release_; }
    /// Seals the token, if that is to precede the release. A seal that fails is abandoned.
    ///
    /// Errors: those of seal_ports::raise_above.
    boost::asio::awaitable<result<void>> seal(std::chrono::steady_clock::time_point until);
    /// Opens the lease again after a seal that failed for `cause`, so that its holder continues. Not where that may
    /// have sealed the token: it gets no further holds, whose writes would be refused.
    void abandon(const failure& cause);
    /// Seals the token of a lease that has been released: the holds that were left when it was prepared may have been
    /// released meanwhile, by calls whose seal found this hold. Logs a failure, because the release has succeeded.
    ///
    /// Out: whether the token is sealed. False also if that is unknown.
    boost::asio::awaitable<bool> seal_released(std::chrono::steady_clock::time_point until);

  private:
    seal_ports& ports_;
    lockcore::lease_claims claims_;
    actor initiator_;
    bool precedes_release_ = false;
    std::optional<lockcore::close_outcome> closed_;  ///< Its mark is removed if the seal fails.
};

}  // namespace fencegate::api
