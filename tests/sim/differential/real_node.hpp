#pragma once

#include <proto/command.hpp>

#include <hiredis/hiredis.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sim {

// Helpers that send commands to a real Redis server and to the simulated one, and compare both.

using std::chrono::milliseconds;

/// The tolerance for times on the two servers: the real clock runs, and all drawn spans are a minute or longer.
constexpr milliseconds clock_tolerance{2'000};

std::string hex16(std::uint64_t n);
/// Returns resource names: the first two share a counter, the next two another, and the last has its own.
std::vector<lockcore::resource_name> make_names();

/// A connection that reads the answers in the order of the commands.
class redis_connection {
  public:
    explicit redis_connection(std::uint16_t port) : redis_(redisConnect("127.0.0.1", port), redisFree) {
        redisSetTimeout(redis_.get(), {5, 0});
    }
    using answer = std::unique_ptr<redisReply, void (*)(redisReply*)>;
    answer ask(const std::string& resp) {
        redisAppendFormattedCommand(redis_.get(), resp.data(), resp.size());
        return next();
    }
    answer next() {
        void* reply = nullptr;
        if (redisGetReply(redis_.get(), &reply) != REDIS_OK) throw std::runtime_error("Redis does not answer");
        return {static_cast<redisReply*>(reply), [](redisReply* r) { freeReplyObject(r); }};
    }

  private:
    std::unique_ptr<redisContext, void (*)(redisContext*)> redis_;
};

struct single_call final : lockcore::reply_target {
    explicit single_call(lockcore::lease_call c) : call_(std::move(c)) {}
    const lockcore::lease_call& call() const override { return call_; }
    void on_reply(lockcore::node_index, lockcore::command_kind, lockcore::fencing_token,
                  const lockcore::node_reply&) override {}
    lockcore::lease_call call_;
};

/// Returns the text of a reply; empty if it has none.
std::string text(const redisReply* r);

bool is_close(milliseconds a, milliseconds b);

}  // namespace sim
