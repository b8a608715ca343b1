#include <runtime/common.hpp>
#include <runtime/leak_scan.hpp>

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

asio::awaitable<result<leak_report>> leak_scan::run() {
    const bool throws_if_cancelled = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    bool running = true;
    for (std::size_t n = 0; n < links_.size(); ++n) {
        report_.nodes.push_back({links_[n]->name(), false, 0, 0, {}});
        if (running) running = co_await scan_node(n);
    }
    co_await asio::this_coro::throw_if_cancelled(throws_if_cancelled);
    if (!running) co_return make_failure(errc::cancelled, "The search for leaked leases was cancelled.");
    co_return std::move(report_);
}

asio::awaitable<bool> leak_scan::scan_node(std::size_t node) {
    std::string cursor = "0";
    do {
        const auto listing = std::make_shared<list_attempt>(cursor, "fg:lease:*", links_[node]);
        listing->start();
        if (!listing->done.has_fired()) co_await listing->done.wait();
        if (!listing->part()) co_return true;  // the node does not answer; its report stays incomplete
        cursor = listing->part()->cursor;
        co_await check_names(node, listing->part()->names);
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
    std::vector<std::shared_ptr<survey_attempt>> on_all_nodes, on_this_node;
    for (const resource_name& name : names) {
        on_all_nodes.push_back(std::make_shared<survey_attempt>(name, links_));
        on_all_nodes.back()->start();
    }
    for (const auto& attempt : on_all_nodes) {
        if (!attempt->done.has_fired()) co_await attempt->done.wait();
        if (attempt->machine().outcome() != survey::verdict::none) continue;
        on_this_node.push_back(
            std::make_shared<survey_attempt>(attempt->call().resources.front(), links_.subspan(node, 1)));
        on_this_node.back()->start();
    }
    std::vector<suspect> out;
    for (const auto& attempt : on_this_node) {
        if (!attempt->done.has_fired()) co_await attempt->done.wait();
        if (attempt->machine().outcome() == survey::verdict::found)
            out.push_back({attempt->call().resources.front(), attempt->machine().lease()->attempt_id});
    }
    co_return out;
}

asio::awaitable<bool> leak_scan::sleep(milliseconds time) {
    timer_.expires_after(time);
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return !co_await is_cancelled();
}

}  // namespace lockcore
