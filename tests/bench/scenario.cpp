#include "scenario.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace bench {
namespace {

struct mode_name {
    mode what;
    const char* name;
    const char* operation;
};

constexpr std::array<mode_name, 7> mode_names{{{mode::pair, "pair", "pairs"},
                                               {mode::hot, "hot", "pairs"},
                                               {mode::write, "write", "writes"},
                                               {mode::job, "job", "jobs"},
                                               {mode::shot, "shot", "jobs"},
                                               {mode::order, "order", "orders"},
                                               {mode::stale, "stale", "jobs"}}};

std::uint64_t number_of(std::string_view digits) {
    std::uint64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
}

/// Statuses that a scenario can meet when all is well; anything else is an error.
bool is_expected(mode m, step s, int status) {
    switch (s) {
        case step::acquire:
            return status == 201 || status == 423;
        case step::write:
            return status == 200 || (m == mode::stale && status == 412) || (m == mode::shot && status == 423);
        case step::release:
            return status == 204 || (m == mode::stale && status == 410);
    }
    return false;
}

bool outcome_is_unknown(const answer& got) {
    return member(got.body, "outcome_unknown") == "true";
}

}  // namespace

std::optional<mode> mode_named(const std::string& name) {
    for (const auto& entry : mode_names) {
        if (name == entry.name) return entry.what;
    }
    return std::nullopt;
}

const char* operation_of(mode m) {
    for (const auto& entry : mode_names) {
        if (m == entry.what) return entry.operation;
    }
    return "ops";
}

bool sells(mode m) {
    return m != mode::pair && m != mode::hot;
}

client::client(run& shared, std::size_t number)
    : run_(shared), number_(number), random_(shared.how.seed * 1'000'003 + number) {}

std::optional<clock::time_point> client::asleep_until() const {
    if (state_ == state::pause) return wake_;
    return std::nullopt;
}

void client::begin(clock::time_point now) {
    const auto& how = run_.how;
    stocking_ = run_.stocking;
    target_ = target::article;
    failed_ = false;
    if (stocking_) {
        if (run_.next_to_stock == run_.sold.size()) return;
        article_ = run_.next_to_stock++;
    } else if (run_.stopping) {
        return;
    } else if (how.what == mode::write) {
        article_ = number_;
        if (!lease_id_.empty()) {
            const bool young = now < valid_until_ - std::chrono::milliseconds(how.ttl_ms) / 2;
            began_ = now;
            state_ = young ? state::sell : state::release;
            return;
        }
    } else if (sells(how.what)) {
        article_ = std::uniform_int_distribution<std::size_t>(0, run_.sold.size() - 1)(random_);
    }
    if (sells(how.what)) {
        resource_ = "inventory/" + how.prefix + std::to_string(article_);
    } else {
        resource_ = "load/" + how.prefix + (how.what == mode::hot ? "hot" : std::to_string(number_));
    }
    lease_id_.clear();
    began_ = now;
    state_ = shoots() ? state::sell : state::acquire;
}

std::string client::sale() const {
    const std::string sku = run_.how.prefix + std::to_string(article_);
    if (stocking_) {
        const std::string stock = std::to_string(run_.how.stock);
        return R"([{"insert":"inventory","values":{"sku":")" + sku + R"(","stock":)" + stock + R"(,"initial_stock":)" +
               stock + "}}]";
    }
    if (target_ == target::order) {
        return R"([{"insert":"orders","values":{"id":)" + std::to_string(order_) + R"(,"sku":")" + sku +
               R"(","quantity":1}}])";
    }
    return R"([{"update":"inventory","where":{"sku":")" + sku +
           R"(","stock":{"gte":1}},"add":{"stock":-1},"expect_rows":1}])";
}

std::optional<call> client::next(clock::time_point now) {
    if (state_ == state::idle) begin(now);
    if (state_ == state::pause && now >= wake_) state_ = state::sell;
    call out;
    switch (state_) {
        case state::idle:
        case state::pause:
            return std::nullopt;
        case state::acquire:
            out = {step::acquire, "POST", "/v1/leases",
                   R"({"resource":")" + resource_ + R"(","ttl_ms":)" + std::to_string(run_.how.ttl_ms) +
                       R"(,"wait_ms":)" + std::to_string(run_.how.wait_ms) + "}"};
            break;
        case state::sell:
            out = {step::write, "POST", "/v1/writes",
                   (shoots()
                        ? R"({"lease":{"resource":")" + resource_ + R"(","ttl_ms":)" + std::to_string(run_.how.ttl_ms) +
                              R"(,"wait_ms":)" + std::to_string(run_.how.wait_ms) + "}"
                        : R"({"lease_id":")" + lease_id_ + '"') +
                       R"(,"operations":)" + sale() + "}"};
            if (run_.how.keyed) {
                out.headers = "Idempotency-Key: " + run_.how.prefix + std::to_string(number_) + "-" +
                              std::to_string(writes_++) + "\r\n";
            }
            break;
        case state::release:
            end_hold();
            out = {step::release, "DELETE", "/v1/leases/" + lease_id_, ""};
            break;
    }
    last_call_ = out.what;
    return out;
}

void client::on_answer(const answer& got, clock::time_point now) {
    run_.counts.answered(last_call_, got.status, is_expected(run_.how.what, last_call_, got.status));
    switch (last_call_) {
        case step::acquire:
            on_granted(got, now);
            break;
        case step::write:
            if (shoots()) {
                on_shot(got, now);
            } else {
                on_sold(got, now);
            }
            break;
        case step::release:
            on_released(got.status, now);
            break;
    }
}

void client::on_granted(const answer& got, clock::time_point now) {
    if (got.status != 201) return give_up();
    if (target_ == target::article) ++run_.granted;
    lease_id_ = member(got.body, "lease_id");
    valid_until_ = now + std::chrono::milliseconds(number_of(member(got.body, "validity_ms")));
    auto& last = run_.last_token[resource_];
    const std::uint64_t token = number_of(member(got.body, "fencing_token"));
    // Where clients sleep past their leases, answers may be read in another order than they were given in.
    const bool orderly = run_.how.what != mode::stale;
    if (token <= last && orderly) run_.counts.token_fell();
    last = std::max(last, token);
    holding_ = true;
    if (++run_.holders[resource_] > 1 && orderly) run_.counts.overlapped();
    if (run_.how.what == mode::hot) run_.counts.done(now - began_);
    if (!sells(run_.how.what)) {
        state_ = state::release;
        return;
    }
    state_ = state::sell;
    if (run_.how.what == mode::stale && !stocking_ &&
        std::uniform_real_distribution<>(0, 1)(random_) < run_.how.pause_share) {
        const int pause_ms = run_.how.pause_ms > 0 ? run_.how.pause_ms : run_.how.ttl_ms * 3 / 2;
        wake_ = now + std::chrono::milliseconds(pause_ms);
        state_ = state::pause;
    }
}

void client::on_shot(const answer& got, clock::time_point now) {
    state_ = state::idle;
    if (got.status != 200) {
        if (outcome_is_unknown(got)) ++run_.sold[article_].unknown;
        return;
    }
    ++run_.granted;
    ++run_.sold[article_].accepted;
    run_.counts.wrote();
    run_.counts.done(now - began_);
}

void client::on_sold(const answer& got, clock::time_point now) {
    auto& mine = run_.sold[article_];
    const bool ordering = target_ == target::order;
    if (got.status == 200) {
        if (!stocking_) {
            ++(ordering ? mine.ordered : mine.accepted);
            run_.counts.wrote();
        }
    } else if (!stocking_ && outcome_is_unknown(got)) {
        ++(ordering ? mine.orders_unknown : mine.unknown);
    }
    if (run_.how.what == mode::write && !stocking_ && got.status == 200) {
        run_.counts.done(now - began_);
        state_ = run_.stopping ? state::release : state::idle;  // idle: the lease is kept.
        return;
    }
    state_ = state::release;
    failed_ = got.status != 200;
}

void client::on_released(int status, clock::time_point now) {
    lease_id_.clear();
    if (run_.how.what == mode::order && !stocking_ && target_ == target::article && !failed_) {
        target_ = target::order;
        order_ = run_.next_order++;
        resource_ = "orders/" + std::to_string(order_);
        state_ = state::acquire;
        return;
    }
    if (status != 204 && run_.how.what != mode::stale) return give_up();
    finish(now);
}

void client::finish(clock::time_point now) {
    // hot and write have counted already, when the wait or the write ended.
    const bool counted = run_.how.what == mode::hot || run_.how.what == mode::write;
    if (!stocking_ && !failed_ && !counted) run_.counts.done(now - began_);
    state_ = state::idle;
}

void client::end_hold() {
    if (holding_) --run_.holders[resource_];
    holding_ = false;
}

void client::give_up() {
    end_hold();
    lease_id_.clear();
    state_ = state::idle;
}

void client::on_broken() {
    run_.counts.broken(last_call_);
    if (last_call_ == step::write && !stocking_) {
        ++(target_ == target::order ? run_.sold[article_].orders_unknown : run_.sold[article_].unknown);
    }
    give_up();
}

}  // namespace bench
