#pragma once

#include <redis/lease_call.hpp>
#include <sim/parts/messages.hpp>

#include <hiredis/hiredis.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sim {

// A real Redis node in the terms of the simulated one: what it is asked, and how the data of both are compared.

/// Two clocks are compared, and one of them runs; all other spans are a minute and more.
constexpr milliseconds alike{2'000};

std::string hex16(std::uint64_t n);
/// Names of resources: the first two share a counter, the next two another.
std::vector<lockcore::resource_name> make_names();

/// One connection, and answers in the order of the questions.
class wire {
  public:
    explicit wire(std::uint16_t port) : redis_(redisConnect("127.0.0.1", port), redisFree) {
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

struct call_of_one final : lockcore::redis::reply_target {
    explicit call_of_one(lockcore::redis::lease_call c) : call_(std::move(c)) {}
    const lockcore::redis::lease_call& call() const override { return call_; }
    void on_reply(lockcore::node_index, lockcore::command_kind, lockcore::fencing_token,
                  const lockcore::node_reply&) override {}
    lockcore::redis::lease_call call_;
};

/// The text of a reply; empty if it has none.
std::string text(const redisReply* r);

/// A lease as it stands on a node, in pieces that can be compared.
struct pieces {
    std::string head, rest;
    milliseconds given{0}, held{0};
};
pieces split(const std::string& lease, const std::vector<lockcore::resource_name>& names);

bool near(milliseconds a, milliseconds b);

/// The call of the product that asks what the simulated node is asked by `q`.
lockcore::redis::lease_call make_call(const request& q, const std::vector<lockcore::resource_name>& names);

}  // namespace sim
