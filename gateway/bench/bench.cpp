#include <gateway/bench/bench.hpp>

#include <gateway/bench/clients.hpp>
#include <gateway/bench/counts.hpp>
#include <gateway/cli/commands.hpp>
#include <gateway/cli/duration_option.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/config/conninfo.hpp>
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
#include <memory>
#include <random>
#include <thread>

namespace fencegate::bench {
namespace {

namespace asio = boost::asio;

/// How long operations that were begun may take after the measured time, beside what they wait or sleep.
constexpr std::chrono::seconds end_max{30};
/// For the statements that make, read and drop the table.
constexpr std::chrono::minutes statement_timeout{10};

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
    /// Runs a statement on a new connection, also when PostgreSQL cannot be reached for a moment.
    auto exec_in_the_end(const std::string& sql) const {
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

  public:
    /// Throws std::runtime_error.
    explicit article_table(const bench_options& options) : name_("fencegate_bench_" + options.name) {
        config_.conninfo = options.conninfo;
        config_.statement_timeout = statement_timeout;
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

asio::ssl::context make_tls(const cli::tls_identity& identity) {
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
    const auto last = bench_clock::now() + end_max + run.options.wait + 2 * run.options.ttl;
    while (run.unfinished > 0 && bench_clock::now() < last)
        co_await sleep_until(timer, bench_clock::now() + std::chrono::milliseconds(5));
    signals.cancel();
}

void print_results(const bench_run& run, const std::vector<std::string>& differences, bool good, bool json) {
    std::uint64_t sold = 0, unknown = 0;
    for (const auto& article : run.counts.articles()) {
        sold += article.sold;
        unknown += article.unknown;
    }
    if (json) {
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

/// Parses `WORK` or `WORK=SHARE`, for example `sale=3`, and adds it to the mix.
///
/// Out: the reason why it can't; empty if it was added.
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

const char* const bench_help =
    R"(Each client repeats one operation after the other on a connection of its own:
  pair   acquires and releases a lease on a resource of its own
  hot    the same on one resource for all; the latency is the wait for the lease
  write  sells one piece of an article of its own under a lease that it keeps
  job    acquires a lease on any article, sells one piece, releases: three calls
  sale   the same in one call
  late   a job; one in ten sleeps until its lease has expired, and its sale has to be refused
All but pair and hot need --conninfo: this program creates the table public.fencegate_bench_NAME, protects and
exposes it, and drops it at the end. At the end it compares the pieces that are gone with the sales that were
answered. The history and the fences of bench/NAME/... stay. Clients use no proxy. INT or TERM ends the run early.
Exit codes: 0 done; 1 an answer was not as the work expects, a lease was held twice, a token did not grow, or the
stock differs; 64 wrong arguments; 69 no gateway or no PostgreSQL answers. The API key comes from FENCEGATE_API_KEY
or --api-key-file, never from an argument; it needs the scopes leases and writes.
Examples:
  fencegate bench pair --clients 64 --time 30s
  fencegate bench pair=3 sale --articles 1 --conninfo 'host=db dbname=shop user=owner'
  fencegate bench late --ttl 400ms --articles 3 --conninfo 'dbname=shop' --json)";

/// Drives gateways for a while and prints rates, latencies and what was answered. Compares the pieces that are gone
/// with those that were sold, and drops what it created; the history of the gateways keeps what was done.
///
/// Out:    exit_ok; exit_failed if an answer was not one that the work expects, or a promise was broken;
///         exit_unavailable.
/// Errors: throws usage_error, gateway_unreachable, gateway_refusal, std::runtime_error.
int run_bench(const cli::client& gateways, bench_options options, bool json) {
    std::random_device device;
    if (!options.seed) options.seed = device();
    if (options.name.empty()) {
        char text[16];
        std::snprintf(text, sizeof text, "%08x", device());
        options.name = text;
    }
    if (sells(options) && options.conninfo.empty())
        throw cli::usage_error("all work but pair and hot needs --conninfo, for the table of the articles");
    gateways.get("/healthz");  // throws if no gateway answers
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
    print_results(run, differences, good, json);
    return good ? exit_ok : exit_failed;
}

}  // namespace

void add_command(cli::commands& commands) {
    const auto options = std::make_shared<bench_options>();
    CLI::App& command = commands.add("bench", "Drive gateways with a mix of work, and show rates and latencies",
                                     bench_help, [options](const cli::client& gateways, bool json) {
                                         return run_bench(gateways, *options, !cli::detect_output_style(json).table);
                                     });
    command
        .add_option_function<std::vector<std::string>>(
            "WORK",
            [options](const std::vector<std::string>& given) {
                options->mix.clear();
                for (const auto& each : given)
                    if (const std::string fault = add_to_mix(each, options->mix); !fault.empty())
                        throw CLI::ValidationError("WORK", fault);
            },
            "pair, hot, write, job, sale or late, and =SHARE; several are mixed [pair]")
        ->type_name("WORK[=SHARE]");
    options->mix = {{bench_work::pair, 1}};
    command
        .add_option("--conninfo", options->conninfo,
                    "libpq connection string of a role that owns the schema fencing, for a table of articles")
        ->check([](const std::string& text) { return find_conninfo_fault(text).value_or(""); });
    command.add_option("--clients", options->clients, "Connections, each with one request at a time")
        ->check(CLI::Range(1U, 100'000U))
        ->capture_default_str();
    command.add_option("--articles", options->articles, "Articles that job, sale and late choose from; 1: a hot one")
        ->check(CLI::Range(1U, 10'000'000U))
        ->capture_default_str();
    command.add_option("--stock", options->stock, "Pieces of each article")
        ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000'000'000}))
        ->capture_default_str();
    cli::add_duration(command, "--time", options->length, "How long to measure [10s]", std::chrono::milliseconds{10});
    cli::add_duration(command, "--warm-up", options->warm_up, "How long to run before it measures [1s]");
    cli::add_duration(command, "--ttl", options->ttl, "Time after which a lease expires [10s]",
                      std::chrono::milliseconds{1});
    cli::add_duration(command, "--wait", options->wait, "Maximum time to wait for a lease [10s]");
    command
        .add_option("--name", options->name,
                    "Part of the names of resources and table; lower case, digits and _ [random]")
        ->type_name("NAME")
        ->check([](const std::string& name) -> std::string {
            const bool good = name.size() <= 32 &&
                              name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
            return good ? "" : "has to be at most 32 lower case letters, digits and _";
        });
    command.add_option("--seed", options->seed, "Of the clients' choices [random]");
    command.add_flag("--keyed", options->keyed, "Send an Idempotency-Key with each acquisition and write");
}

}  // namespace fencegate::bench
