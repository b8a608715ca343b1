#include <gateway/api/history/history.hpp>

#include <gateway/api/addressing.hpp>
#include <gateway/api/history/history_render.hpp>
#include <gateway/api/history/history_request.hpp>
#include <gateway/api/history/lease_timeline.hpp>
#include <gateway/api/leases/lease_render.hpp>
#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/query.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/history/history_reader.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/json/serialize.hpp>

namespace fencegate::api {
namespace {

using boost::asio::awaitable;

constexpr std::size_t last_events = 20;

/// The lease as a majority of nodes sees it. Errors: `no_quorum` without a majority; `resource_locked` if another value
/// occupies its key.
using seen_lease = lockcore::result<std::optional<lockcore::live_lease>>;

http::awaitable_response show_token(const gateway_services& services, http::request r, lockcore::resource_name resource,
                                    std::uint64_t token) {
    history_query query;
    query.resource = resource.str();
    query.token_min = query.token_max = token;
    query.ascending = true;
    query.limit = pg::history_page_max;
    lease_timeline timeline;
    for (std::int64_t read = 0;;) {
        auto page = co_await services.database.read_history(r.principal, read_cost::cheap, query, r.deadline);
        if (!page) co_return page.error();
        read += static_cast<std::int64_t>(page->items.size());
        if (page->more) query.after = position_of(page->items.back());
        for (history_item& item : page->items)
            timeline.add(std::move(item));
        if (page->more && read < resource_events_counted_max) continue;
        const seen_lease seen = co_await services.locks.find_lease(resource);
        const bool live = seen && *seen && lockcore::value_of((*seen)->claims.token) == token;
        if (!timeline.empty() || live)
            co_return http::json_response(timeline.render(resource.str(), token, live, !page->more));
        const failure none = make_failure(errc::not_found, "The history has no such token of this resource.");
        co_return none;
    }
}

std::string_view state_of(const seen_lease& seen) {
    if (seen) return *seen ? "held" : "free";
    return seen.error().code == lockcore::errc::resource_locked ? "occupied" : "unknown";
}

std::string render_resource(const lockcore::resource_name& resource, const resource_facts& facts,
                            const seen_lease& seen, std::size_t nodes) {
    std::string text;
    http::object_writer out(text);
    out.text("resource", resource.str()).number("last_fencing_token", facts.last_fencing_token);
    out.text("lease_state", state_of(seen));
    if (!seen) out.raw("nodes", boost::json::serialize(to_failure(seen.error()).facts.at("nodes")));
    if (seen && *seen) {
        lockcore::live_lease lease = **seen;
        std::erase(lease.claims.resources, resource);
        lease.claims.resources.insert(lease.claims.resources.begin(), resource);
        out.raw("lease", render_live_lease(lease, nodes));
    } else {
        out.null("lease");
    }
    out.key("counts");
    http::object_writer counts(text);
    for (const auto& [event, count] : facts.counts)
        counts.number(event, count);
    counts.end();
    out.boolean("counts_complete", facts.all_counted).key("last_events");
    append_history_items(text, facts.last_events);
    out.end();
    return text;
}

}  // namespace

http::awaitable_response show_resource(const gateway_services& services, http::request r) {
    http::fault_list faults;
    const http::query_reader query = r.path_parameters.empty()
                                         ? http::query_reader(r.query, {"resource", "fencing_token"}, faults)
                                         : http::query_reader(r.query, {"fencing_token"}, faults);
    auto resource = read_resource(r, query);
    if (!resource) co_return resource.error();
    const auto allowed = r.rights->require(scope::history, resource->str());
    if (!allowed) co_return allowed.error();
    const auto token = query.integer("fencing_token", {1, lockcore::fencing_token_max});
    if (!faults.empty()) co_return std::move(faults).to_failure();
    if (token)
        co_return co_await show_token(services, std::move(r), std::move(*resource), static_cast<std::uint64_t>(*token));

    auto read = [resource = *resource](pg::session& session) {
        return pg::read_resource(session, resource.str(), last_events);
    };
    const auto facts = co_await services.database.read(r.principal, read_cost::cheap, r.deadline, std::move(read));
    if (!facts) co_return facts.error();
    const seen_lease seen = co_await services.locks.find_lease(*resource);
    co_return http::json_response(render_resource(*resource, *facts, seen, services.settings.locks.nodes.size()));
}

}  // namespace fencegate::api
