// load: runs keep-alive HTTP clients in one thread that acquire leases, sell stock and release.
// Prints a line of text and a line of JSON; --sales also writes a file that tests/bench/verify.py compares with
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

/// The time that pending operations may take after the end of the measured time.
constexpr auto drain_max = 30s;
constexpr auto reopen_after = 50ms;

struct arguments {
    load_options options;
    std::vector<endpoint> gateways;
    std::string sales_file;
};

endpoint parse_endpoint(const std::string& url) {
    constexpr std::string_view scheme = "http://";
    const auto colon = url.rfind(':');
    if (url.rfind(scheme, 0) != 0 || colon < scheme.size())
        throw std::invalid_argument("not http://ADDRESS:PORT: " + url);
    return {url.substr(scheme.size(), colon - scheme.size()),
            static_cast<std::uint16_t>(std::stoi(url.substr(colon + 1)))};
}

/// Reads the addresses of all gateways of a stack.json, and the key of its principal `orders` if it has keys.
void read_stack(const std::string& file, arguments& out) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    const std::string json = text.str();
    const auto begin = json.find("\"gateways\"");
    if (begin == std::string::npos) throw std::invalid_argument("no stack in " + file);
    const auto end = json.find(']', begin);
    for (auto at = json.find("\"http\"", begin); at < end; at = json.find("\"http\"", at + 1)) {
        out.gateways.push_back(parse_endpoint(std::string(member(std::string_view(json).substr(at), "http"))));
    }
    if (const auto keys = json.find("\"api_keys\""); keys != std::string::npos) {
        out.options.headers +=
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
    out.options.prefix = random_prefix();
    out.options.seed = std::random_device{}();
    for (int i = 1; i < count; i += 2) {
        const std::string name = values[i];
        if (i + 1 == count) throw std::invalid_argument(name + " needs a value");
        const std::string value = values[i + 1];
        auto& options = out.options;
        if (name == "--stack")
            read_stack(value, out);
        else if (name == "--http") {
            std::stringstream urls(value);
            for (std::string url; std::getline(urls, url, ',');)
                out.gateways.push_back(parse_endpoint(url));
        } else if (name == "--mode") {
            const auto found = find_workload(value);
            if (!found) throw std::invalid_argument("no mode " + value);
            options.mode = *found;
        } else if (name == "--clients")
            options.clients = std::stoul(value);
        else if (name == "--seconds")
            options.seconds = std::stod(value);
        else if (name == "--warm-seconds")
            options.warm_seconds = std::stod(value);
        else if (name == "--skus")
            options.skus = std::stoul(value);
        else if (name == "--stock")
            options.stock = std::stoull(value);
        else if (name == "--ttl-ms")
            options.ttl_ms = std::stoi(value);
        else if (name == "--wait-ms")
            options.wait_ms = std::stoi(value);
        else if (name == "--pause-share")
            options.pause_share = std::stod(value);
        else if (name == "--pause-ms")
            options.pause_ms = std::stoi(value);
        else if (name == "--prefix")
            options.prefix = value;
        else if (name == "--seed")
            options.seed = std::stoull(value);
        else if (name == "--keyed")
            options.keyed = value == "1";
        else if (name == "--key")
            options.headers += "Authorization: Bearer " + value + "\r\n";
        else if (name == "--sales")
            out.sales_file = value;
        else
            throw std::invalid_argument("unknown option " + name);
    }
    if (out.gateways.empty()) throw std::invalid_argument("--stack or --http is needed");
    if (out.options.clients == 0 || out.options.skus == 0 || out.options.seconds <= 0)
        throw std::invalid_argument("clients, skus and seconds are above 0");
    if (out.options.mode == workload::write) out.options.skus = out.options.clients;
    return out;
}

/// Runs all clients and their connections in one thread.
class driver {
  public:
    explicit driver(const arguments& args) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        run_.options = args.options;
        run_.creating_articles = sells_articles(args.options.mode);
        if (run_.creating_articles) run_.sold.resize(args.options.skus);
        run_.next_order = (std::mt19937_64(args.options.seed)() >> 24) << 20;
        sessions_.reserve(args.options.clients);
        for (std::size_t i = 0; i < args.options.clients; ++i) {
            sessions_.push_back({connection(args.gateways[i % args.gateways.size()]), client(run_, i), {}, false});
        }
    }
    ~driver() { close(epoll_); }
    driver(const driver&) = delete;
    driver& operator=(const driver&) = delete;

    /// Connects all clients. Returns false if a gateway does not listen.
    bool open() {
        return std::all_of(sessions_.begin(), sessions_.end(), [this](session& s) { return open(s); });
    }

    /// Creates the articles. Returns false if one could not be created.
    bool create_articles() {
        if (!run_.creating_articles) return true;
        run_until_idle(clock::now() + 120s);
        run_.creating_articles = false;
        const bool good = run_.counts.errors() == 0 && run_.next_article_to_create == run_.sold.size();
        run_.counts = tally{};
        return good;
    }

    /// Runs the workload and returns the measured seconds.
    double measure() {
        const auto seconds = [](double s) {
            return std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(s));
        };
        run_until(clock::now() + seconds(run_.options.warm_seconds));
        run_.counts.begin_window();
        const auto begin = clock::now();
        run_until(begin + seconds(run_.options.seconds));
        run_.counts.end_window();
        const double measured = std::chrono::duration<double>(clock::now() - begin).count();
        run_.stopping = true;
        run_until_idle(clock::now() + drain_max);
        return measured;
    }

    run& result() { return run_; }

  private:
    struct session {
        connection transport;
        client actor;
        clock::time_point reopen_at;
        bool waiting = false;  ///< A request is pending.
    };

    bool open(session& s) {
        if (!s.transport.open()) return false;
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.ptr = &s;
        return epoll_ctl(epoll_, EPOLL_CTL_ADD, s.transport.socket(), &event) == 0;
    }

    void handle_disconnect(session& s) {
        s.actor.on_broken();
        s.transport.close();
        s.waiting = false;
        s.reopen_at = clock::now() + reopen_after;
    }

    /// Sends the client's next request, if there is one.
    void send_next(session& s, clock::time_point now) {
        if (s.waiting || (s.transport.socket() < 0 && (now < s.reopen_at || !open(s)))) return;
        const auto request = s.actor.next(now);
        if (!request) return;
        s.waiting =
            s.transport.send(request->method, request->path, request->body, run_.options.headers + request->headers);
        if (!s.waiting) handle_disconnect(s);
    }

    void poll_once(clock::time_point deadline) {
        std::array<epoll_event, 256> events{};
        auto now = clock::now();
        auto next_wake = deadline;
        for (auto& s : sessions_) {
            if (s.waiting) continue;
            send_next(s, now);
            if (const auto at = s.actor.asleep_until()) next_wake = std::min(next_wake, *at);
        }
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_wake - now).count();
        const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                                     static_cast<int>(std::clamp<long>(left, 0, 20)));
        for (int i = 0; i < count; ++i) {
            auto& s = *static_cast<session*>(events[static_cast<std::size_t>(i)].data.ptr);
            const auto progress = s.transport.receive();
            now = clock::now();
            if (progress == connection::progress::complete) {
                s.waiting = false;
                s.actor.on_answer(s.transport.take_answer(), now);
                send_next(s, now);
            } else if (progress == connection::progress::broken) {
                handle_disconnect(s);
            }
        }
    }

    void run_until(clock::time_point end) {
        while (clock::now() < end)
            poll_once(end);
    }

    void run_until_idle(clock::time_point end) {
        do {
            poll_once(end);
        } while (clock::now() < end && std::any_of(sessions_.begin(), sessions_.end(),
                                                   [](const session& s) { return s.waiting || !s.actor.is_idle(); }));
    }

    int epoll_;
    run run_;
    std::vector<session> sessions_;
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
    for (const auto& article : sold) {
        sum.accepted += article.accepted;
        sum.unknown += article.unknown;
        sum.ordered += article.ordered;
        sum.orders_unknown += article.orders_unknown;
    }
    return "\"sold\":" + std::to_string(sum.accepted) + ",\"sold_unknown\":" + std::to_string(sum.unknown) +
           ",\"ordered\":" + std::to_string(sum.ordered) + ",\"ordered_unknown\":" + std::to_string(sum.orders_unknown);
}

void write_sales(const std::string& file, const run& done, const std::string& mode_name) {
    const auto& options = done.options;
    const auto& sold = done.sold;
    std::ofstream out(file);
    out << "{\"mode\":\"" << mode_name << "\",\"prefix\":\"" << options.prefix << "\",\"stock\":" << options.stock
        << ",\"granted\":" << done.granted << "," << totals(sold) << ",\"skus\":[";
    for (std::size_t i = 0; i < sold.size(); ++i) {
        const auto& article = sold[i];
        out << (i == 0 ? "\n" : ",\n") << "{\"sku\":\"" << options.prefix << i << "\",\"accepted\":" << article.accepted
            << ",\"unknown\":" << article.unknown << ",\"ordered\":" << article.ordered
            << ",\"orders_unknown\":" << article.orders_unknown << "}";
    }
    out << "]}\n";
    if (!out.flush()) throw std::runtime_error("could not write " + file);
}

std::string workload_name(workload mode) {
    for (const char* name : {"pair", "hot", "write", "job", "shot", "order", "stale"}) {
        if (find_workload(name) == mode) return name;
    }
    return "?";
}

int load(const arguments& args) {
    driver load_driver(args);
    if (!load_driver.open()) {
        std::cerr << "load: no gateway listens at " << args.gateways.front().host << ":" << args.gateways.front().port
                  << "\n";
        return 69;
    }
    if (!load_driver.create_articles()) {
        std::cerr << "load: the articles could not be created: " << load_driver.result().counts.summary("", 1) << "\n";
        return 1;
    }
    const double cpu = cpu_seconds();
    const auto began = clock::now();
    const double seconds = load_driver.measure();
    const double cores = (cpu_seconds() - cpu) / std::chrono::duration<double>(clock::now() - began).count();
    auto& result = load_driver.result();
    const std::string mode_name = workload_name(args.options.mode);
    const std::string operation = operation_name(args.options.mode);
    if (!args.sales_file.empty()) write_sales(args.sales_file, result, mode_name);
    char cores_text[32];
    std::snprintf(cores_text, sizeof cores_text, "%.2f", cores);
    std::cout << mode_name << " " << args.options.clients << " clients: " << result.counts.summary(operation, seconds)
              << "\n"
              << "{\"mode\":\"" << mode_name << "\",\"clients\":" << args.options.clients << ",\"prefix\":\""
              << args.options.prefix << "\"," << result.counts.json(operation, seconds) << "," << totals(result.sold)
              << ",\"client_cores\":" << cores_text << "}" << std::endl;
    return result.counts.operations() > 0 && result.counts.errors() == 0 && result.counts.violations() == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** values) {
    try {
        return load(read_arguments(count, values));
    } catch (const std::invalid_argument& error) {
        std::cerr << "load: " << error.what() << "\n" << usage;
        return 64;
    } catch (const std::exception& error) {
        std::cerr << "load: " << error.what() << "\n";
        return 1;
    }
}
