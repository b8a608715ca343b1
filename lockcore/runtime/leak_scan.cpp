#include <runtime/common.hpp>
#include <runtime/leak_scan.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <memory>

namespace lockcore {
namespace asio = boost::asio;
namespace {

void add_example(std::vector<std::string>& to, const std::string& name) {
    if (to.size() < leak_report::examples_max && std::ranges::find(to, name) == to.end()) to.push_back(name);
}

}  // namespace

asio::awaitable<result<leak_report>> leak_scan::run() {
    const bool threw = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    bool on = true;
    for (std::size_t n = 0; n < links_.size(); ++n) {
        report_.nodes.push_back({links_[n]->name(), false, 0, 0, {}});
        if (on) on = co_await walk(n);
    }
    co_await asio::this_coro::throw_if_cancelled(threw);
    if (!on) co_return fail(errc::cancelled, "The search for leaks was stopped.");
    co_return std::move(report_);
}

/// False: cancelled.
asio::awaitable<bool> leak_scan::walk(std::size_t node) {
    std::string cursor = "0";
    do {
        const auto asked = std::make_shared<list_attempt>(cursor, "fg:lease:*", links_[node]);
        asked->start();
        if (!asked->done.fired()) co_await asked->done.wait();
        if (!asked->part()) co_return true;  // it is away; the report says that it was not walked over
        cursor = asked->part()->cursor;
        co_await look_at(node, asked->part()->names);
        if (!co_await sleep(pause)) co_return false;
    } while (cursor != "0");
    report_.nodes[node].walked = true;
    co_return true;
}

asio::awaitable<void> leak_scan::look_at(std::size_t node, std::vector<list_part::name> names) {
    auto& found = report_.nodes[node];
    std::vector<resource_name> resources;
    for (auto& name : names) {
        auto resource = resource_name::parse(name.text);
        if (!resource) continue;  // somebody else's key
        ++found.leases;
        if (name.never_runs_out) {
            ++found.without_ttl;
            add_example(found.examples, name.text);
        }
        resources.push_back(std::move(*resource));
    }
    const std::vector<suspect> first = co_await held_by_minority(node, std::move(resources));
    if (first.empty() || !co_await sleep(second_look)) co_return;
    std::vector<resource_name> again;
    for (const suspect& s : first)
        again.push_back(s.resource);
    for (const suspect& s : co_await held_by_minority(node, std::move(again))) {
        const auto same = [&s](const suspect& before) {
            return before.resource == s.resource && before.attempt == s.attempt;
        };
        if (std::ranges::none_of(first, same) || counted_.contains(s.attempt.str())) continue;
        if (counted_.size() < counted_max) counted_.emplace(s.attempt.str());
        ++report_.held_by_minority;
        add_example(report_.minority_examples, s.resource.str());
    }
}

/// Those that the node has and no majority.
asio::awaitable<std::vector<leak_scan::suspect>> leak_scan::held_by_minority(std::size_t node,
                                                                             std::vector<resource_name> names) {
    std::vector<std::shared_ptr<survey_attempt>> everywhere, here;
    for (const resource_name& name : names) {
        everywhere.push_back(std::make_shared<survey_attempt>(name, links_));
        everywhere.back()->start();
    }
    for (const auto& one : everywhere) {
        if (!one->done.fired()) co_await one->done.wait();
        if (one->machine().outcome() != survey::verdict::none) continue;
        here.push_back(std::make_shared<survey_attempt>(one->call().resources.front(), links_.subspan(node, 1)));
        here.back()->start();
    }
    std::vector<suspect> out;
    for (const auto& one : here) {
        if (!one->done.fired()) co_await one->done.wait();
        if (one->machine().outcome() == survey::verdict::found)
            out.push_back({one->call().resources.front(), one->machine().lease()->attempt});
    }
    co_return out;
}

/// False: cancelled.
asio::awaitable<bool> leak_scan::sleep(milliseconds time) {
    timer_.expires_after(time);
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return !co_await caller_gone();
}

}  // namespace lockcore
