// Requests that wait or stream leave connections to the others.
#include <gateway/limits/limiter.hpp>

#include <gtest/gtest.h>
#include <boost/asio/ip/address.hpp>

#include <string>
#include <vector>

namespace fencegate::limits {
namespace {

class long_requests_test : public testing::Test {
  protected:
    /// Lets a principal at an address begin such requests until one is refused, and returns how many it got.
    std::size_t take_all(limiter& l, const std::string& principal, const char* address) {
        for (std::size_t count = 0;; ++count) {
            auto place = l.admit_long_request(l.caller_of(principal), boost::asio::ip::make_address(address));
            if (!place) return count;
            places_.push_back(std::move(place));
        }
    }
    std::vector<std::shared_ptr<void>> places_;
};

TEST_F(long_requests_test, leave_a_quarter_of_all_connections) {
    limiter l({}, {40, 40, 10}, true);
    EXPECT_EQ(take_all(l, "dev", "192.0.2.1"), 30U);
    EXPECT_EQ(take_all(l, "dev", "192.0.2.2"), 0U);
    places_.pop_back();
    EXPECT_EQ(take_all(l, "dev", "192.0.2.2"), 1U);
}

TEST_F(long_requests_test, leave_a_quarter_of_each_address) {
    limiter l({}, {1'000, 40, 10}, true, 20);
    EXPECT_EQ(take_all(l, "dev", "192.0.2.1"), 15U);
    EXPECT_EQ(take_all(l, "dev", "2001:db8::1"), 15U);
    EXPECT_EQ(take_all(l, "dev", "2001:db8::2"), 0U) << "the same network";
    places_.erase(places_.begin());
    EXPECT_EQ(take_all(l, "dev", "192.0.2.1"), 1U);
}

TEST_F(long_requests_test, leave_a_quarter_of_the_requests_of_each_principal) {
    limiter l({}, {160, 40, 10}, false);
    EXPECT_EQ(take_all(l, "a", "192.0.2.1"), 90U) << "of 120";
    EXPECT_EQ(take_all(l, "b", "192.0.2.1"), 30U) << "what is left of the 120 of all";
    EXPECT_EQ(l.caller_of("b")->count(use::long_requests), 30U) << "a refusal takes no place";
    places_.clear();
    EXPECT_EQ(l.caller_of("b")->count(use::long_requests), 0U);
}

TEST_F(long_requests_test, places_outlive_the_limiter) {
    {
        limiter l({}, {4, 4, 4}, true);
        EXPECT_EQ(take_all(l, "dev", "192.0.2.1"), 3U);
    }
    places_.clear();
}

}  // namespace
}  // namespace fencegate::limits
