#include <gateway/cli/bench.hpp>

#include <gateway/cli/bench_clients.hpp>
#include <gateway/cli/bench_counts.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <deque>
#include <iostream>
#include <random>
#include <thread>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;

/// How long operations that were begun may take after the measured time.
constexpr std::chrono::seconds end_max{30};

bool sells(const bench_options& options) {
    return std::ranges::any_of(
        options.mix, [](const auto& each) { return each.first != bench_work::pair && each.first != bench_work::hot; });
}

/// Returns the number of articles: those that all clients sell, and one of each client's own.
unsigned count_articles(const bench_options& options) {
    return sells(options) ? options.articles + options.clients : 0;
}

/// The table of the articles, protected and exposed, for as long as this object lives.
class article_table {
  public:
    /// Throws std::runtime_error.
    explicit article_table(const bench_options& options) : name_("fencegate_bench_" + options.name) {
        config_.conninfo = options.conninfo;
        pg::session(config_).exec(
            fmt::format("do $do$ begin "
                        "create table public.{0} (id integer primary key, stock bigint not null check (stock >= 0)) "
                        "with (fillfactor = 70); "
                        "comment on table public.{0} is 'Of fencegate bench: drop it when that has ended.'; "
                        "insert into public.{0} select n, {1} from generate_series(0, {2}) n; "
                        "perform fencing.protect('public.{0}', $$'bench/{3}/' || id$$), "
                        "fencing.expose_table('public.{0}'); end $do$",
                        name_, options.stock, count_articles(options) - 1, options.name),
            {});
    }
    ~article_table() {
        try {
            exec_in_the_end(
                fmt::format("do $do$ begin perform fencing.hide('{0}'), fencing.unprotect('public.{0}'); "
                            "drop table public.{0}; end $do$",
                            name_));
        } catch (const std::exception& e) {
            runtime::print_error("bench", "the table public." + name_ + " was not dropped: " + e.what());
        }
    }
    article_table(const article_table&) = delete;
    article_table& operator=(const article_table&) = delete;

    /// Returns the pieces left of each article.
    std::vector<std::uint64_t> stock() const {
        std::vector<std::uint64_t> out;
        for (const auto& row : exec_in_the_end(fmt::format("select stock from public.{} order by id", name_)))
            out.push_back(row[0].as<std::uint64_t>());
        return out;
    }

  private:
    /// Runs a statement on a new connection, also when PostgreSQL cannot be reached for a moment.
    pqxx::result exec_in_the_end(const std::string& sql) const {
        constexpr auto time = std::chrono::seconds(30);
        for (const auto last = bench_clock::now() + time;;) {
            try {
                return pg::session(config_).exec(sql, {});
            } catch (const pg::session_lost&) {
                if (bench_clock::now() > last) throw;
            }
            std::this_thread::sleep_for(std::chrono::seconds(1));
        }
    }

    std::string name_;
    postgres_config config_;
};

/// Compares what is gone of each article with what the gateways have answered.
///
/// Out: lines that name what differs.
std::vector<std::string> compare_sales(const std::vector<bench_counts::sales>& articles,
                                       const std::vector<std::uint64_t>& left, std::uint64_t stock) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < articles.size(); ++i) {
        const std::uint64_t gone = stock - left.at(i);
        const auto& [sold, unknown] = articles[i];
        if (gone < sold || gone > sold + unknown)
            out.push_back("article " + std::to_string(i) + ": " + std::to_string(gone) + " pieces are gone, " +
                          std::to_string(sold) + " were sold, " + std::to_string(unknown) + " answers are unknown");
    }
    return out;
}

asio::ssl::context make_tls(const tls_identity& identity) {
    asio::ssl::context out(asio::ssl::context::tls_client);
    out.set_verify_mode(asio::ssl::verify_peer);
    if (identity.authorities.empty()) {
        out.set_default_verify_paths();
    } else {
        out.add_certificate_authority(asio::buffer(identity.authorities));
    }
    if (!identity.certificate.empty()) {
        out.use_certificate_chain(asio::buffer(identity.certificate));
        out.use_private_key(asio::buffer(identity.key), asio::ssl::context::pem);
    }
    return out;
}

asio::awaitable<void> sleep_until(asio::steady_timer& timer, bench_clock::time_point end) {
    boost::system::error_code ignored;
    timer.expires_at(end);
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

/// Measures for the time of the options, then lets the clients end. Prints the progress on a terminal.
asio::awaitable<void> measure(bench_run& run, asio::steady_timer& timer, asio::signal_set& signals) {
    co_await sleep_until(timer, bench_clock::now() + run.options.warm_up);
    run.counts.begin();
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const auto end = bench_clock::now() + run.options.length;
    std::uint64_t counted = 0;
    while (!run.stopping && bench_clock::now() < end) {
        co_await sleep_until(timer, std::min(end, bench_clock::now() + std::chrono::seconds(1)));
        const auto left = std::chrono::ceil<std::chrono::seconds>(end - bench_clock::now()).count();
        if (terminal)
            std::cerr << "\r\x1b[K" << run.counts.operations() - std::exchange(counted, run.counts.operations())
                      << " operations/s, " << run.counts.errors() << " unexpected answers, " << left << " s left"
                      << std::flush;
    }
    if (terminal) std::cerr << "\r\x1b[K" << std::flush;
    run.counts.end();
    run.stopping = true;
    const auto last = bench_clock::now() + end_max;
    while (run.unfinished > 0 && bench_clock::now() < last)
        co_await sleep_until(timer, bench_clock::now() + std::chrono::milliseconds(5));
    signals.cancel();
}

void print_results(const bench_run& run, const std::vector<std::string>& differences, bool good) {
    std::uint64_t sold = 0, unknown = 0;
    for (const auto& article : run.counts.articles()) {
        sold += article.sold;
        unknown += article.unknown;
    }
    if (run.options.json) {
        std::cout << "{\"name\":\"" << run.options.name << "\",\"clients\":" << run.options.clients << ","
                  << run.counts.json() << ",\"sold\":" << sold << ",\"sold_unknown\":" << unknown
                  << ",\"articles_that_differ\":" << differences.size()
                  << ",\"clients_without_answer\":" << run.unfinished << ",\"good\":" << (good ? "true" : "false")
                  << "}\n";
    } else {
        std::cout << run.counts.text();
        if (sells(run.options))
            std::cout << sold << " pieces sold, " << unknown
                      << " unknown; articles whose stock differs: " << differences.size() << "\n";
    }
    for (const auto& line : differences)
        runtime::print_error("bench", line);
}

}  // namespace

std::string add_to_mix(std::string_view text, std::map<bench_work, unsigned>& mix) {
    const auto equals = text.find('=');
    const auto* const found = std::ranges::find(bench_works, text.substr(0, equals));
    if (found == bench_works.end()) return "there is no work " + std::string(text.substr(0, equals));
    unsigned share = 1;
    if (equals != std::string_view::npos) {
        const std::string_view digits = text.substr(equals + 1);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), share);
        if (error != std::errc{} || end != digits.data() + digits.size() || share == 0 || share > 1'000)
            return "the share of " + std::string(text) + " has to be a number from 1 to 1000";
    }
    mix[static_cast<bench_work>(found - bench_works.begin())] = share;
    return {};
}

int run_bench(gateway_options gateway, bench_options options) {
    const client gateways(gateway);
    std::random_device device;
    if (!options.seed) options.seed = device();
    if (options.name.empty()) {
        char text[16];
        std::snprintf(text, sizeof text, "%08x", device());
        options.name = text;
    }
    if (sells(options) && options.conninfo.empty())
        throw usage_error("all work but pair and hot needs --conninfo, for the table of the articles");
    gateways.get("/readyz");  // throws what is wrong with address, key or gateway
    asio::io_context context(1);
    asio::signal_set signals(context, SIGINT, SIGTERM);  // until the table is dropped
    std::optional<article_table> table;
    try {
        if (sells(options)) table.emplace(options);
    } catch (const pg::session_lost& e) {
        runtime::print_error("bench", e.what());
        return exit_unavailable;
    }

    bench_run run{options, gateways, make_tls(gateways.identity()), bench_counts(count_articles(options))};
    run.counts.test_grants(!options.mix.contains(bench_work::late));
    run.unfinished = options.clients;
    asio::steady_timer timer(context);
    signals.async_wait([&](const boost::system::error_code& error, int) {
        if (error) return;
        run.stopping = true;
        timer.cancel();
    });
    std::deque<bench_client> clients;
    const auto rethrow = [](const std::exception_ptr& error) {
        if (error) std::rethrow_exception(error);
    };
    for (unsigned i = 0; i < options.clients; ++i)
        asio::co_spawn(context, clients.emplace_back(run, context, i).run(), rethrow);
    asio::co_spawn(context, measure(run, timer, signals), [&](const std::exception_ptr& error) {
        context.stop();  // a client that is still waiting is not waited for
        rethrow(error);
    });
    context.run();

    std::vector<std::string> differences;
    if (table) differences = compare_sales(run.counts.articles(), table->stock(), options.stock);
    if (run.unfinished > 0)
        runtime::print_error("bench", std::to_string(run.unfinished) + " clients got no answer to their last call");
    const bool good = run.counts.operations() > 0 && run.counts.errors() == 0 && run.counts.violations() == 0 &&
                      run.unfinished == 0 && differences.empty();
    print_results(run, differences, good);
    return good ? exit_ok : exit_failed;
}

}  // namespace fencegate::cli
