#pragma once

#include <gateway/cli/http_exchange.hpp>

#include <boost/json/value.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// What every command that speaks to a gateway takes.
struct gateway_options {
    std::string url = "http://127.0.0.1:8080";
    std::filesystem::path api_key_file;  ///< Empty: the environment's FENCEGATE_API_KEY, if any.
    std::filesystem::path cacert;        ///< Empty: the system's certificates.
    std::chrono::milliseconds timeout{10'000};
};

/// Wrong arguments, in words for the person who gave them.
class usage_error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A gateway that answered, but not with what was asked for.
class refused : public std::runtime_error {
  public:
    explicit refused(const answer& what);
    unsigned status;
};

/// A gateway as this program calls it, one call after another.
class client {
  public:
    /// Throws usage_error.
    explicit client(const gateway_options& given);

    /// Throws unreachable.
    answer call(request what) const;

    /// The JSON of a 2xx. Throws unreachable, refused.
    boost::json::value get(std::string_view target) const;

    /// Calls `take` with the items of each page of a list until there are `limit` of them or no more. Throws as get.
    ///
    /// Out: whether the list goes on.
    bool pages(std::string_view path, std::vector<std::pair<std::string, std::string>> parameters, std::size_t limit,
               const std::function<void(const boost::json::array&)>& take) const;

    /// Calls `take` with each event of a stream as it comes, until that gives false. Where the connection breaks,
    /// hangs or the gateway can't answer for a while, it is opened again behind the last event. Throws unreachable
    /// where there was no first answer, refused.
    void follow(std::string_view target, const std::function<bool(const stream_event&)>& take) const;

    const gateway_address& at() const { return at_; }
    /// Certificates (PEM) to trust over https; empty: the system's.
    const std::string& authorities() const { return authorities_; }
    const std::string& api_key() const { return api_key_; }
    std::chrono::milliseconds timeout() const { return timeout_; }

  private:
    gateway_address at_;
    std::string authorities_;
    std::string api_key_;
    std::chrono::milliseconds timeout_;
};

/// A problem document (RFC 9457) as lines for people: title, detail, each fault, request_id.
std::string describe(const answer& problem);

}  // namespace fencegate::cli
