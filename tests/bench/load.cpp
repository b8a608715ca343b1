// load: keep-alive clients that take leases, sell stock and release through HTTP, in one thread.
// Prints one line for people and one JSON line; with --sales also a file that tests/bench/verify.py compares with
// PostgreSQL.

#include "connection.hpp"
#include "scenario.hpp"
#include "tally.hpp"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace {

using namespace bench;
using namespace std::chrono_literals;

constexpr const char* usage =
    "load (--stack DIR/stack.json | --http http://ADDRESS:PORT[,…]) [options]\n"
    "  --mode pair|hot|write|job|shot|order|stale   what the clients do (job)\n"
    "  --clients N      keep-alive clients (16)          --seconds S      measured time (5), after --warm-seconds (1)\n"
    "  --skus N         articles that are sold (1000)    --stock N        pieces of each (1000000000)\n"
    "  --ttl-ms N       lease time (10000)               --wait-ms N      how long to wait for a lease (10000)\n"
    "  --pause-share P  stale: sales after a sleep (0.1) --pause-ms N     that sleep (1.5 times the ttl)\n"
    "  --sales FILE     what was sold, for verify.py     --key KEY        API key   --prefix NAME   --seed N\n"
    "  --keyed 0|1      each write with an Idempotency-Key of its own (0)\n";

/// Beyond the end of the measured time: how long the operations under way may take.
constexpr auto drain_max = 30s;
constexpr auto reopen_after = 50ms;

struct arguments {
    options how;
    std::vector<endpoint> gateways;
    std::string sales_file;
};

endpoint endpoint_of(const std::string& url) {
    constexpr std::string_view scheme = "http://";
    const auto colon = url.rfind(':');
    if (url.rfind(scheme, 0) != 0 || colon < scheme.size())
        throw std::invalid_argument("not http://ADDRESS:PORT: " + url);
    return {url.substr(scheme.size(), colon - scheme.size()),
            static_cast<std::uint16_t>(std::stoi(url.substr(colon + 1)))};
}

/// Every gateway of a stack.json, and the key of its principal `orders` where it has keys.
void read_stack(const std::string& file, arguments& out) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    const std::string json = text.str();
    const auto begin = json.find("\"gateways\"");
    if (begin == std::string::npos) throw std::invalid_argument("no stack in " + file);
    const auto end = json.find(']', begin);
    for (auto at = json.find("\"http\"", begin); at < end; at = json.find("\"http\"", at + 1)) {
        out.gateways.push_back(endpoint_of(std::string(member(std::string_view(json).substr(at), "http"))));
    }
    if (const auto keys = json.find("\"api_keys\""); keys != std::string::npos) {
        out.how.headers +=
            "Authorization: Bearer " + std::string(member(std::string_view(json).substr(keys), "orders")) + "\r\n";
    }
}

std::string random_prefix() {
    std::random_device device;
    char text[24];
    std::snprintf(text, sizeof text, "run-%08x-", device());
    return text;
}

arguments read_arguments(int count, char** values) {
    arguments out;
    out.how.prefix = random_prefix();
    out.how.seed = std::random_device{}();
    for (int i = 1; i < count; i += 2) {
        const std::string name = values[i];
        if (i + 1 == count) throw std::invalid_argument(name + " needs a value");
        const std::string value = values[i + 1];
        auto& how = out.how;
        if (name == "--stack")
            read_stack(value, out);
        else if (name == "--http") {
            std::stringstream urls(value);
            for (std::string url; std::getline(urls, url, ',');)
                out.gateways.push_back(endpoint_of(url));
        } else if (name == "--mode") {
            const auto found = mode_named(value);
            if (!found) throw std::invalid_argument("no mode " + value);
            how.what = *found;
        } else if (name == "--clients")
            how.clients = std::stoul(value);
        else if (name == "--seconds")
            how.seconds = std::stod(value);
        else if (name == "--warm-seconds")
            how.warm_seconds = std::stod(value);
        else if (name == "--skus")
            how.skus = std::stoul(value);
        else if (name == "--stock")
            how.stock = std::stoull(value);
        else if (name == "--ttl-ms")
            how.ttl_ms = std::stoi(value);
        else if (name == "--wait-ms")
            how.wait_ms = std::stoi(value);
        else if (name == "--pause-share")
            how.pause_share = std::stod(value);
        else if (name == "--pause-ms")
            how.pause_ms = std::stoi(value);
        else if (name == "--prefix")
            how.prefix = value;
        else if (name == "--seed")
            how.seed = std::stoull(value);
        else if (name == "--keyed")
            how.keyed = value == "1";
        else if (name == "--key")
            how.headers += "Authorization: Bearer " + value + "\r\n";
        else if (name == "--sales")
            out.sales_file = value;
        else
            throw std::invalid_argument("unknown option " + name);
    }
    if (out.gateways.empty()) throw std::invalid_argument("--stack or --http is needed");
    if (out.how.clients == 0 || out.how.skus == 0 || out.how.seconds <= 0)
        throw std::invalid_argument("clients, skus and seconds are above 0");
    if (out.how.what == mode::write) out.how.skus = out.how.clients;
    return out;
}

/// The one thread: connections, clients, and who is due when.
class driver {
  public:
    explicit driver(const arguments& args) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        run_.how = args.how;
        run_.stocking = sells(args.how.what);
        if (run_.stocking) run_.sold.resize(args.how.skus);
        run_.next_order = (std::mt19937_64(args.how.seed)() >> 24) << 20;
        seats_.reserve(args.how.clients);
        for (std::size_t i = 0; i < args.how.clients; ++i) {
            seats_.push_back({connection(args.gateways[i % args.gateways.size()]), client(run_, i), {}, false});
        }
    }
    ~driver() { close(epoll_); }
    driver(const driver&) = delete;
    driver& operator=(const driver&) = delete;

    /// False if no gateway listens.
    bool open() {
        return std::all_of(seats_.begin(), seats_.end(), [this](seat& s) { return open(s); });
    }

    /// Makes the articles. False if one could not be made.
    bool stock_up() {
        if (!run_.stocking) return true;
        until_idle(clock::now() + 120s);
        run_.stocking = false;
        const bool good = run_.counts.errors() == 0 && run_.next_to_stock == run_.sold.size();
        run_.counts = tally{};
        return good;
    }

    /// Gives the measured seconds.
    double measure() {
        const auto seconds = [](double s) {
            return std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(s));
        };
        turn_until(clock::now() + seconds(run_.how.warm_seconds));
        run_.counts.begin_window();
        const auto begin = clock::now();
        turn_until(begin + seconds(run_.how.seconds));
        run_.counts.end_window();
        const double measured = std::chrono::duration<double>(clock::now() - begin).count();
        run_.stopping = true;
        until_idle(clock::now() + drain_max);
        return measured;
    }

    run& result() { return run_; }

  private:
    struct seat {
        connection wire;
        client who;
        clock::time_point reopen_at;
        bool waiting = false;  ///< A request is under way.
    };

    bool open(seat& s) {
        if (!s.wire.open()) return false;
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.ptr = &s;
        return epoll_ctl(epoll_, EPOLL_CTL_ADD, s.wire.socket(), &event) == 0;
    }

    void lose(seat& s) {
        s.who.on_broken();
        s.wire.close();
        s.waiting = false;
        s.reopen_at = clock::now() + reopen_after;
    }

    /// Lets the client send what it has to say.
    void kick(seat& s, clock::time_point now) {
        if (s.waiting || (s.wire.socket() < 0 && (now < s.reopen_at || !open(s)))) return;
        const auto todo = s.who.next(now);
        if (!todo) return;
        s.waiting = s.wire.send(todo->method, todo->path, todo->body, run_.how.headers + todo->headers);
        if (!s.waiting) lose(s);
    }

    void turn(clock::time_point until) {
        std::array<epoll_event, 256> events{};
        auto now = clock::now();
        auto wake = until;
        for (auto& s : seats_) {
            if (s.waiting) continue;
            kick(s, now);
            if (const auto at = s.who.asleep_until()) wake = std::min(wake, *at);
        }
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
        const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                                     static_cast<int>(std::clamp<long>(left, 0, 20)));
        for (int i = 0; i < count; ++i) {
            auto& s = *static_cast<seat*>(events[static_cast<std::size_t>(i)].data.ptr);
            const auto got = s.wire.receive();
            now = clock::now();
            if (got == connection::progress::complete) {
                s.waiting = false;
                s.who.on_answer(s.wire.take(), now);
                kick(s, now);
            } else if (got == connection::progress::broken) {
                lose(s);
            }
        }
    }

    void turn_until(clock::time_point end) {
        while (clock::now() < end)
            turn(end);
    }

    void until_idle(clock::time_point end) {
        do {
            turn(end);
        } while (clock::now() < end &&
                 std::any_of(seats_.begin(), seats_.end(), [](const seat& s) { return s.waiting || !s.who.idle(); }));
    }

    int epoll_;
    run run_;
    std::vector<seat> seats_;
};

double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::string totals(const std::vector<sales>& sold) {
    sales sum;
    for (const auto& one : sold) {
        sum.accepted += one.accepted;
        sum.unknown += one.unknown;
        sum.ordered += one.ordered;
        sum.orders_unknown += one.orders_unknown;
    }
    return "\"sold\":" + std::to_string(sum.accepted) + ",\"sold_unknown\":" + std::to_string(sum.unknown) +
           ",\"ordered\":" + std::to_string(sum.ordered) + ",\"ordered_unknown\":" + std::to_string(sum.orders_unknown);
}

void write_sales(const std::string& file, const run& done, const std::string& mode_name) {
    const auto& how = done.how;
    const auto& sold = done.sold;
    std::ofstream out(file);
    out << "{\"mode\":\"" << mode_name << "\",\"prefix\":\"" << how.prefix << "\",\"stock\":" << how.stock
        << ",\"granted\":" << done.granted << "," << totals(sold) << ",\"skus\":[";
    for (std::size_t i = 0; i < sold.size(); ++i) {
        const auto& one = sold[i];
        out << (i == 0 ? "\n" : ",\n") << "{\"sku\":\"" << how.prefix << i << "\",\"accepted\":" << one.accepted
            << ",\"unknown\":" << one.unknown << ",\"ordered\":" << one.ordered
            << ",\"orders_unknown\":" << one.orders_unknown << "}";
    }
    out << "]}\n";
    if (!out.flush()) throw std::runtime_error("could not write " + file);
}

std::string name_of(mode m) {
    for (const char* name : {"pair", "hot", "write", "job", "shot", "order", "stale"}) {
        if (mode_named(name) == m) return name;
    }
    return "?";
}

int load(const arguments& args) {
    driver all(args);
    if (!all.open()) {
        std::cerr << "load: nobody listens at " << args.gateways.front().host << ":" << args.gateways.front().port
                  << "\n";
        return 69;
    }
    if (!all.stock_up()) {
        std::cerr << "load: the articles could not be made: " << all.result().counts.for_people("", 1) << "\n";
        return 1;
    }
    const double cpu = cpu_seconds();
    const auto began = clock::now();
    const double seconds = all.measure();
    const double cores = (cpu_seconds() - cpu) / std::chrono::duration<double>(clock::now() - began).count();
    auto& result = all.result();
    const std::string mode_name = name_of(args.how.what);
    const std::string operation = operation_of(args.how.what);
    if (!args.sales_file.empty()) write_sales(args.sales_file, result, mode_name);
    char cores_text[32];
    std::snprintf(cores_text, sizeof cores_text, "%.2f", cores);
    std::cout << mode_name << " " << args.how.clients << " clients: " << result.counts.for_people(operation, seconds)
              << "\n"
              << "{\"mode\":\"" << mode_name << "\",\"clients\":" << args.how.clients << ",\"prefix\":\""
              << args.how.prefix << "\"," << result.counts.json(operation, seconds) << "," << totals(result.sold)
              << ",\"client_cores\":" << cores_text << "}" << std::endl;
    return result.counts.operations() > 0 && result.counts.errors() == 0 && result.counts.violations() == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** values) {
    try {
        return load(read_arguments(count, values));
    } catch (const std::invalid_argument& wrong) {
        std::cerr << "load: " << wrong.what() << "\n" << usage;
        return 64;
    } catch (const std::exception& failure) {
        std::cerr << "load: " << failure.what() << "\n";
        return 1;
    }
}
