// Acquires a lease, prints its fencing token, and releases it. README.md says how to run it.
#include <lockcore/hmac_sha256.hpp>
#include <lockcore/lock_manager.hpp>

#include <boost/asio.hpp>
#include <iostream>
#include <thread>

#include "file_register.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;

struct no_history final : lockcore::event_observer {
    void on_event(lockcore::event) override {}
};

asio::awaitable<int> take(lockcore::lock_manager& manager, lockcore::acquire_request request) {
    asio::steady_timer pause(co_await asio::this_coro::executor);
    for (int i = 0; i < 100 && !manager.has_quorum(); ++i) {  // nodes are being admitted
        pause.expires_after(100ms);
        co_await pause.async_wait(asio::use_awaitable);
    }
    const auto lease = co_await manager.acquire(std::move(request));
    if (!lease) {
        std::cerr << to_string(lease.error().code) << ": " << lease.error().detail << '\n';
        for (const auto& n : manager.nodes())
            std::cerr << "  " << n.name << ": " << to_string(n.state) << ", " << n.detail << '\n';
        co_return 1;
    }
    std::cout << "token " << value_of(lease->claims.token) << ", valid for " << lease->validity.count() << " ms\n";
    co_return co_await manager.release(lease->claims, "") ? 0 : 1;  // after the write, with the token
}

int main(int argc, char** argv) try {
    const char* key = std::getenv("LOCKCORE_KEY");  // signs lease_ids; 32 bytes or more
    if (argc < 4 || !key) throw std::runtime_error("usage: LOCKCORE_KEY=… take_lease RESOURCE REGISTER HOST:PORT…");
    lockcore::config cfg;
    cfg.default_ttl = cfg.max_ttl = 3s;  // short: it is the length of a node's quarantine
    for (const std::string node : std::vector(argv + 3, argv + argc)) {
        const auto colon = node.rfind(':');
        cfg.nodes.push_back({node, node.substr(0, colon), std::uint16_t(std::atoi(&node[colon + 1])), "", "", "", {}});
    }
    if (const auto faults = cfg.validate(); !faults.empty()) throw std::runtime_error(faults.front());
    lockcore::acquire_request request{{lockcore::resource_name::parse(argv[1]).value()}, {"example", ""}, 2s, 5s, ""};
    example::file_register epochs(argv[2]);
    const lockcore::hmac_sha256 mac(key);
    no_history events;
    asio::io_context io(1);
    lockcore::lock_manager manager(cfg, {&io}, {epochs, mac, events});
    manager.start();
    const std::jthread shard([&] { io.run(); });
    const int status = asio::co_spawn(io, take(manager, request), asio::use_future).get();
    manager.stop();  // io.run() then returns
    return status;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
