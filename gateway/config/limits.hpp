#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace fencegate {

/// How many requests may be sent: a token bucket.
struct request_rate {
    std::size_t per_second = 0;  ///< On average. 0: no limit. Up to 1,000,000.
    std::size_t burst = 0;       ///< At once, after a pause. 0: as many as in a second. Up to 10,000,000.
    friend bool operator==(const request_rate&, const request_rate&) = default;
};

/// The limits of one IPv4 address or one IPv6 /64 network. They apply before a request is authenticated.
struct address_limits {
    request_rate requests;
    /// Requests with a credential that is not valid. 0: no limit. Up to 1,000,000.
    std::size_t failed_authentications_per_minute = 60;
    friend bool operator==(const address_limits&, const address_limits&) = default;
};

/// The limits of one principal. They apply after a request is authenticated.
struct principal_limits {
    request_rate requests;
    std::size_t leases_max = 0;   ///< Leases held that this gateway granted. 0: no limit. Up to 1,000,000.
    std::size_t waiters_max = 0;  ///< Calls that wait for a lease. 0: three quarters of lease.waiters_max.
    /// Streams of the history and kept leases, together. 0: three quarters of a gateway's streams of the history, and
    /// no limit for kept leases.
    std::size_t streams_max = 0;
    friend bool operator==(const principal_limits&, const principal_limits&) = default;
};

struct limits_config {
    address_limits address;
    principal_limits principal;
    /// Principals with limits of their own. A key that an entry lacks is that of `principal`.
    std::map<std::string, principal_limits, std::less<>> principals;
    friend bool operator==(const limits_config&, const limits_config&) = default;
};

}  // namespace fencegate
