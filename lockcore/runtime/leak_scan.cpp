#include <runtime/leak_scan.hpp>

#include <proto/failures.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <memory>

namespace lockcore {
namespace asio = boost::asio;
namespace {

void add_example(std::vector<std::string>& examples, const std::string& name) {
    if (examples.size() < leak_report::examples_max && std::ranges::find(examples, name) == examples.end())
        examples.push_back(name);
}

}  // namespace

leak_scan::leak_scan(shard& leases) : leases_(leases), timer_(leases.io()) {}

asio::awaitable<result<leak_report>> leak_scan::run() {
    const bool throws_if_cancelled = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    bool running = true;
    for (std::size_t n = 0; n < leases_.nodes(); ++n) {
        report_.nodes.push_back({leases_.status_of(static_cast<node_index>(n)).name, false, 0, 0, {}});
        if (running) running = co_await scan_node(n);
    }
    co_await asio::this_coro::throw_if_cancelled(throws_if_cancelled);
    if (!running) co_return make_failure(errc::cancelled, "The search for leaked leases was cancelled.");
    co_return std::move(report_);
}

asio::awaitable<bool> leak_scan::scan_node(std::size_t node) {
    const auto until = std::chrono::steady_clock::now() + node_time_max;
    std::string cursor = "0";
    do {
        input::list next{{}, static_cast<node_index>(node), cursor, "fg:lease:*"};
        const auto part = co_await leases_.call<result<list_part>>(std::move(next));
        // If the node does not answer, or lists without end, its report stays incomplete.
        if (!part || std::chrono::steady_clock::now() >= until) co_return true;
        cursor = part->cursor;
        co_await check_names(node, part->names);
        if (!co_await sleep(part_interval)) co_return false;
    } while (cursor != "0");
    report_.nodes[node].complete = true;
    co_return true;
}

asio::awaitable<void> leak_scan::check_names(std::size_t node, std::vector<list_part::name> names) {
    auto& report = report_.nodes[node];
    std::vector<resource_name> resources;
    for (auto& name : names) {
        auto resource = resource_name::parse(name.text);
        if (!resource) continue;  // not a key of lockcore
        ++report.leases;
        if (name.without_ttl) {
            ++report.without_ttl;
            add_example(report.examples, name.text);
        }
        resources.push_back(std::move(*resource));
    }
    const std::vector<suspect> suspects = co_await find_minority_leases(node, std::move(resources));
    if (suspects.empty() || !co_await sleep(recheck_delay)) co_return;
    std::vector<resource_name> again;
    for (const suspect& s : suspects)
        again.push_back(s.resource);
    for (const suspect& s : co_await find_minority_leases(node, std::move(again))) {
        const auto same = [&s](const suspect& before) {
            return before.resource == s.resource && before.attempt_id == s.attempt_id;
        };
        if (std::ranges::none_of(suspects, same) || counted_.contains(s.attempt_id.str())) continue;
        if (counted_.size() < counted_max) counted_.emplace(s.attempt_id.str());
        ++report_.held_by_minority;
        add_example(report_.minority_examples, s.resource.str());
    }
}

asio::awaitable<std::vector<leak_scan::suspect>> leak_scan::find_minority_leases(std::size_t node,
                                                                                 std::vector<resource_name> names) {
    using found_lease = result<std::optional<live_lease>>;
    const auto start_searches = [this](const std::vector<resource_name>& wanted, std::optional<node_index> only) {
        std::vector<std::shared_ptr<shard::pending_call>> out;
        for (const resource_name& name : wanted)
            out.push_back(leases_.start_call(input::find_lease{{}, name, only}));
        return out;
    };
    std::vector<resource_name> on_no_majority;
    const auto on_all_nodes = start_searches(names, std::nullopt);
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!on_all_nodes[i]->done.has_fired()) co_await on_all_nodes[i]->done.wait();
        const auto& found = std::get<found_lease>(*on_all_nodes[i]->outcome);
        if (found && !*found) on_no_majority.push_back(names[i]);
    }
    std::vector<suspect> out;
    const auto on_this_node = start_searches(on_no_majority, static_cast<node_index>(node));
    for (std::size_t i = 0; i < on_no_majority.size(); ++i) {
        if (!on_this_node[i]->done.has_fired()) co_await on_this_node[i]->done.wait();
        const auto& found = std::get<found_lease>(*on_this_node[i]->outcome);
        if (found && *found) out.push_back({on_no_majority[i], (*found)->claims.attempt_id});
    }
    co_return out;
}

asio::awaitable<bool> leak_scan::sleep(milliseconds time) {
    timer_.expires_after(time);
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return (co_await asio::this_coro::cancellation_state).cancelled() == asio::cancellation_type::none;
}

}  // namespace lockcore
