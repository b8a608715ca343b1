#pragma once

#include <gateway/domain/principal_share.hpp>
#include <gateway/limits/caller.hpp>

#include <boost/asio/ip/address.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace fencegate::limits {

/// An IPv4 address, or the /64 network of an IPv6 address, which one caller usually has.
using address_key = boost::asio::ip::address_v6::bytes_type;
address_key key_of(const boost::asio::ip::address& peer);

/// Counts the requests that wait for a lease or stream their answers, of all callers and of each address. They have at
/// most their share of the connections; the rest is for requests that are answered at once, such as renewals, releases
/// and writes.
///
/// Threads:  safe.
/// Lifetime: shared by its places.
class long_requests : public std::enable_shared_from_this<long_requests> {
  public:
    /// `connections_of_address` 0: no limit.
    long_requests(std::size_t connections, std::size_t connections_of_address)
        : most_(share_of(connections)), most_of_address_(share_of(connections_of_address)) {}

    /// Takes a place until the result is destroyed. Out: null if there is none.
    std::shared_ptr<void> take_place(const boost::asio::ip::address& peer);

  private:
    void return_place(const address_key& address);

    std::mutex mutex_;
    std::size_t count_ = 0;
    std::map<address_key, std::size_t> by_address_;
    const std::size_t most_, most_of_address_;
};

}  // namespace fencegate::limits
