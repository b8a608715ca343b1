#include "scenario.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace bench {
namespace {

struct workload_entry {
    workload mode;
    const char* name;
    const char* operation;
};

constexpr std::array<workload_entry, 7> workload_entries{{{workload::pair, "pair", "pairs"},
                                                          {workload::hot, "hot", "pairs"},
                                                          {workload::write, "write", "writes"},
                                                          {workload::job, "job", "jobs"},
                                                          {workload::shot, "shot", "jobs"},
                                                          {workload::order, "order", "orders"},
                                                          {workload::stale, "stale", "jobs"}}};

std::uint64_t parse_number(std::string_view digits) {
    std::uint64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
}

/// Returns whether a step may be answered with this status although nothing is wrong; any other status is an error.
bool is_expected(workload mode, step s, int status) {
    switch (s) {
        case step::acquire:
            return status == 201 || status == 423 || (mode == workload::stale && status == 410);
        case step::write:
            return status == 200 || (mode == workload::stale && status == 412) ||
                   (mode == workload::shot && status == 423);
        case step::release:
            return status == 204 || (mode == workload::stale && status == 410);
    }
    return false;
}

bool is_outcome_unknown(const answer& response) {
    return member(response.body, "outcome_unknown") == "true";
}

}  // namespace

std::optional<workload> find_workload(const std::string& name) {
    for (const auto& entry : workload_entries) {
        if (name == entry.name) return entry.mode;
    }
    return std::nullopt;
}

const char* operation_name(workload mode) {
    for (const auto& entry : workload_entries) {
        if (mode == entry.mode) return entry.operation;
    }
    return "ops";
}

bool sells_articles(workload mode) {
    return mode != workload::pair && mode != workload::hot;
}

client::client(run& shared, std::size_t number)
    : run_(shared), number_(number), random_(shared.options.seed * 1'000'003 + number) {}

std::optional<clock::time_point> client::asleep_until() const {
    if (state_ == state::pause) return wake_;
    return std::nullopt;
}

void client::begin(clock::time_point now) {
    const auto& options = run_.options;
    creating_article_ = run_.creating_articles;
    target_ = target::article;
    failed_ = false;
    if (creating_article_) {
        if (run_.next_article_to_create == run_.sold.size()) return;
        article_ = run_.next_article_to_create++;
    } else if (run_.stopping) {
        return;
    } else if (options.mode == workload::write) {
        article_ = number_;
        if (!lease_id_.empty()) {
            const bool long_valid = now < valid_until_ - std::chrono::milliseconds(options.ttl_ms) / 2;
            began_ = now;
            state_ = long_valid ? state::sell : state::release;
            return;
        }
    } else if (sells_articles(options.mode)) {
        article_ = std::uniform_int_distribution<std::size_t>(0, run_.sold.size() - 1)(random_);
    }
    if (sells_articles(options.mode)) {
        resource_ = "inventory/" + options.prefix + std::to_string(article_);
    } else {
        resource_ = "load/" + options.prefix + (options.mode == workload::hot ? "hot" : std::to_string(number_));
    }
    lease_id_.clear();
    began_ = now;
    state_ = writes_in_one_call() ? state::sell : state::acquire;
}

std::string client::build_operations() const {
    const std::string sku = run_.options.prefix + std::to_string(article_);
    if (creating_article_) {
        const std::string stock = std::to_string(run_.options.stock);
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
                   R"({"resource":")" + resource_ + R"(","ttl_ms":)" + std::to_string(run_.options.ttl_ms) +
                       R"(,"wait_ms":)" + std::to_string(run_.options.wait_ms) + "}"};
            break;
        case state::sell:
            out = {step::write, "POST", "/v1/writes",
                   (writes_in_one_call() ? R"({"lease":{"resource":")" + resource_ + R"(","ttl_ms":)" +
                                               std::to_string(run_.options.ttl_ms) + R"(,"wait_ms":)" +
                                               std::to_string(run_.options.wait_ms) + "}"
                                         : R"({"lease_id":")" + lease_id_ + '"') +
                       R"(,"operations":)" + build_operations() + "}"};
            if (run_.options.keyed) {
                out.headers = "Idempotency-Key: " + run_.options.prefix + std::to_string(number_) + "-" +
                              std::to_string(writes_++) + "\r\n";
            }
            break;
        case state::release:
            end_hold();
            out = {step::release, "DELETE", "/v1/leases/" + lease_id_, ""};
            break;
    }
    last_call_ = out.kind;
    return out;
}

void client::on_answer(const answer& response, clock::time_point now) {
    run_.counts.record_answer(last_call_, response.status, is_expected(run_.options.mode, last_call_, response.status));
    switch (last_call_) {
        case step::acquire:
            on_granted(response, now);
            break;
        case step::write:
            if (writes_in_one_call()) {
                on_single_call_write(response, now);
            } else {
                on_sold(response, now);
            }
            break;
        case step::release:
            on_released(response.status, now);
            break;
    }
}

void client::on_granted(const answer& response, clock::time_point now) {
    if (response.status != 201) return abandon_operation();
    if (target_ == target::article) ++run_.granted;
    lease_id_ = member(response.body, "lease_id");
    valid_until_ = now + std::chrono::milliseconds(parse_number(member(response.body, "validity_ms")));
    auto& last = run_.last_token[resource_];
    const std::uint64_t token = parse_number(member(response.body, "fencing_token"));
    // While other clients sleep past the end of their leases, answers may be read in another order than they were sent.
    const bool check_order = run_.options.mode != workload::stale;
    if (token <= last && check_order) run_.counts.record_token_decrease();
    last = std::max(last, token);
    holding_ = true;
    if (++run_.holders[resource_] > 1 && check_order) run_.counts.record_overlap();
    if (run_.options.mode == workload::hot) run_.counts.record_operation(now - began_);
    if (!sells_articles(run_.options.mode)) {
        state_ = state::release;
        return;
    }
    state_ = state::sell;
    if (run_.options.mode == workload::stale && !creating_article_ &&
        std::uniform_real_distribution<>(0, 1)(random_) < run_.options.pause_share) {
        const int pause_ms = run_.options.pause_ms > 0 ? run_.options.pause_ms : run_.options.ttl_ms * 3 / 2;
        wake_ = now + std::chrono::milliseconds(pause_ms);
        state_ = state::pause;
    }
}

void client::on_single_call_write(const answer& response, clock::time_point now) {
    state_ = state::idle;
    if (response.status != 200) {
        if (is_outcome_unknown(response)) ++run_.sold[article_].unknown;
        return;
    }
    ++run_.sold[article_].accepted;  // writes that waited together had one lease
    run_.counts.record_write();
    run_.counts.record_operation(now - began_);
}

void client::on_sold(const answer& response, clock::time_point now) {
    auto& article_sales = run_.sold[article_];
    const bool ordering = target_ == target::order;
    if (response.status == 200) {
        if (!creating_article_) {
            ++(ordering ? article_sales.ordered : article_sales.accepted);
            run_.counts.record_write();
        }
    } else if (!creating_article_ && is_outcome_unknown(response)) {
        ++(ordering ? article_sales.orders_unknown : article_sales.unknown);
    }
    if (run_.options.mode == workload::write && !creating_article_ && response.status == 200) {
        run_.counts.record_operation(now - began_);
        state_ = run_.stopping ? state::release : state::idle;  // idle keeps the lease
        return;
    }
    state_ = state::release;
    failed_ = response.status != 200;
}

void client::on_released(int status, clock::time_point now) {
    lease_id_.clear();
    if (run_.options.mode == workload::order && !creating_article_ && target_ == target::article && !failed_) {
        target_ = target::order;
        order_ = run_.next_order++;
        resource_ = "orders/" + std::to_string(order_);
        state_ = state::acquire;
        return;
    }
    if (status != 204 && run_.options.mode != workload::stale) return abandon_operation();
    finish(now);
}

void client::finish(clock::time_point now) {
    // hot and write have counted the operation already, when the wait or the write ended.
    const bool counted = run_.options.mode == workload::hot || run_.options.mode == workload::write;
    if (!creating_article_ && !failed_ && !counted) run_.counts.record_operation(now - began_);
    state_ = state::idle;
}

void client::end_hold() {
    if (holding_) --run_.holders[resource_];
    holding_ = false;
}

void client::abandon_operation() {
    end_hold();
    lease_id_.clear();
    state_ = state::idle;
}

void client::on_broken() {
    run_.counts.record_disconnect(last_call_);
    if (last_call_ == step::write && !creating_article_) {
        ++(target_ == target::order ? run_.sold[article_].orders_unknown : run_.sold[article_].unknown);
    }
    abandon_operation();
}

}  // namespace bench
