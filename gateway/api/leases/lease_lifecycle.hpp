#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/http/message.hpp>
#include <gateway/limits/held_leases.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// What a lease needs beside single calls of the lock_manager: the limits before it begins, a wait for any one of
// several resources, and the seal of its token when it ends.

namespace fencegate::api {

/// Checks whether the event buffer accepts the events of a new lease of the principal (audit.buffer_max); of an empty
/// principal, whether it does of any.
///
/// Errors: errc::storage_unavailable.
result<void> check_event_capacity(const audit::event_sink& events, const limits::limiter& limiter,
                                  const std::string& principal = {});

/// Checks the space for events and the limits of a principal that is about to acquire a lease, and lets the request
/// check those of waiting, and of its address, before it waits. The request of a kept lease has to have the place of a
/// stream already.
///
/// In:     `any_of`: the request is for one of its resources (acquire_any). It waits as one request, but as a waiter of
///         each resource.
/// Out:    what counts the acquisition; the caller keeps it until that has ended.
/// Errors: errc::too_many_requests (limits.principal.leases_max) · those of check_event_capacity.
result<limits::held_leases::acquisition> admit_acquisition(const lease_services& services,
                                                           const std::shared_ptr<limits::caller>& caller,
                                                           const boost::asio::ip::address& peer,
                                                           lockcore::acquire_request& request, bool any_of = false);

/// Takes the places of a stream: those of the given kinds of its principal, and among the requests that wait or stream.
///
/// Out:    keeps the places until it is destroyed; null without a principal.
/// Errors: errc::too_many_requests.
result<std::shared_ptr<void>> admit_stream(limits::limiter& limiter, const http::request& r,
                                           std::initializer_list<limits::use> kinds);

/// Releases a lease that its caller never received or no longer uses. If that fails, the lease expires.
boost::asio::awaitable<void> release_abandoned_lease(lockcore::lock_manager& locks, lockcore::lease_claims claims,
                                                     std::string origin);

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

/// Acquires a lease on any one of `wanted.resources`: on one that is free, or on the first that becomes free within
/// `wanted.wait`. The caller waits in the queue of each of them. A second lease that is granted at the same moment is
/// released at once. The lease is never a further hold of a named owner, but that of an idempotency key if it is known.
///
/// Errors: those of lock_manager::acquire; resource_locked and no_quorum only if they are so for all resources.
/// Cancel: (terminal) leaves every queue; a grant is returned.
boost::asio::awaitable<lockcore::result<lockcore::lease>> acquire_any(const lease_services& services,
                                                                      lockcore::acquire_request wanted);

/// Cancels the acquire_any() with the same idempotency key, holder and resources (lock_manager::cancel).
boost::asio::awaitable<lockcore::result<void>> cancel_any(lockcore::lock_manager& locks,
                                                          lockcore::acquire_request wanted);

}  // namespace fencegate::api
