#include <gateway/pg/catalog/catalog.hpp>

#include <spdlog/spdlog.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace fencegate::pg {
namespace {

const std::string read_catalog =
    "select name, kind, target, coalesce(to_json(operations)::text, '[]'), coalesce(columns::text, '[]'), "
    "coalesce(arguments::text, '[]'), coalesce(returns_set, false), coalesce(returns_void, false), "
    "coalesce(changes_nothing, false), coalesce(shared_resource_expression, ''), coalesce(primary_key::text, '[]'), "
    "coalesce(foreign_keys::text, '[]'), coalesce(returns_row, false), coalesce(hides_rows, false), "
    "coalesce(object_ids, '') "  // not parsed: statements prepared for a type that was replaced have to be dropped
    "from fencing.api_catalog order by kind, name";

std::shared_ptr<catalog> parse(const pqxx::result& rows) {
    auto out = std::make_shared<catalog>();
    for (const auto& row : rows) {
        for (const auto& field : row)
            out->source.append(field.c_str()).push_back('\n');
        const std::string name = row[0].c_str();
        if (std::string(row[1].c_str()) == "table") {
            auto& table = out->tables[name];
            table.target = row[2].c_str();
            table.operations = parse_catalog_operations(row[3].c_str());
            table.columns = parse_catalog_fields(row[4].c_str());
            table.shared_resource_expression = row[9].c_str();
            table.primary_key = parse_catalog_names(row[10].c_str());
            table.foreign_keys = parse_catalog_foreign_keys(row[11].c_str());
            table.hides_rows = row[13].as<bool>();
        } else {
            auto& function = out->functions[name];
            function.target = row[2].c_str();
            function.arguments = parse_catalog_fields(row[5].c_str());
            function.returns_set = row[6].as<bool>();
            function.returns_void = row[7].as<bool>();
            function.changes_nothing = row[8].as<bool>();
            function.columns = parse_catalog_fields(row[4].c_str());
            function.returns_row = row[12].as<bool>();
        }
    }
    return out;
}

}  // namespace

std::vector<described_object> describe_exposed(session& session) {
    std::vector<described_object> out;
    const auto rows = session.exec(
        "select name, kind, coalesce(description, ''), coalesce(to_json(operations)::text, '[]'), "
        "coalesce(changes_nothing, false), coalesce(returns_void, false), schemas::text from fencing.describe_api()",
        {});
    for (const auto& row : rows) {
        auto& made = out.emplace_back();
        made.name = row[0].c_str();
        made.is_function = std::string_view(row[1].c_str()) == "function";
        made.description = row[2].c_str();
        made.operations = parse_catalog_operations(row[3].c_str());
        made.changes_nothing = row[4].as<bool>();
        made.returns_void = row[5].as<bool>();
        made.schemas = boost::json::parse(row[6].c_str()).as_array();
    }
    return out;
}

std::shared_ptr<const catalog> catalog_store::current() const {
    const std::lock_guard lock(mutex_);
    return current_;
}

void catalog_store::load(session& session) {
    const auto began = std::chrono::steady_clock::now();
    auto fresh = parse(session.exec(read_catalog, {}));
    const std::lock_guard lock(mutex_);
    loaded_at_ = began;
    if (current_ && current_->source == fresh->source) return;
    fresh->generation = current_ ? current_->generation + 1 : 1;
    current_ = std::move(fresh);
}

void catalog_store::reload(session& session) {
    const std::lock_guard lock(loading_);
    load(session);
}

std::shared_ptr<const catalog> catalog_store::get(session& session) {
    auto known = current();
    if (!known) known = refresh(session, nullptr);
    session.use_catalog_generation(known->generation);
    return known;
}

std::shared_ptr<const catalog> catalog_store::refresh(session& session, const std::shared_ptr<const catalog>& seen) {
    auto read = read_since(session, seen, std::chrono::steady_clock::now(), lookup_limit, lookups_);
    return read ? read : seen;
}

std::shared_ptr<const catalog> catalog_store::refresh_since(session& session,
                                                            const std::shared_ptr<const catalog>& seen,
                                                            std::chrono::steady_clock::time_point moment) {
    return read_since(session, seen, moment, change_limit, certain_lookups_);
}

std::shared_ptr<const catalog> catalog_store::read_since(session& session, const std::shared_ptr<const catalog>& seen,
                                                         std::chrono::steady_clock::time_point moment,
                                                         const limits::bucket_size& limit,
                                                         limits::request_bucket& readings) {
    const std::lock_guard lock(loading_);
    auto known = current();
    // loaded_at_ is written only under loading_.
    if (known == seen && (!known || loaded_at_ <= moment)) {
        if (known && !readings.take(limit, std::chrono::steady_clock::now()).admitted) return nullptr;
        load(session);
        known = current();
    }
    session.use_catalog_generation(known->generation);
    return known;
}

void catalog_listener::start() {
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    thread_ = std::thread([this] { loop(); });
}

void catalog_listener::stop() {
    ending_ = true;
    if (wake_ >= 0) ::eventfd_write(wake_, 1);
    slot_.cut_if_overdue(deadline::max());
    if (thread_.joinable()) thread_.join();
    if (wake_ >= 0) ::close(std::exchange(wake_, -1));
}

void catalog_listener::enforce_deadlines(std::chrono::steady_clock::time_point now) {
    slot_.cut_if_overdue(now);
}

void catalog_listener::loop() {
    while (!ending_) {
        try {
            listen();
        } catch (const session_lost&) {
            slot_.drop();
            pause(std::chrono::steady_clock::now() + reconnect_backoff_min);
        } catch (const std::exception& e) {
            slot_.drop();
            spdlog::error("the catalog can't be read: {}", e.what());
            pause(std::chrono::steady_clock::now() + catalog_recheck);
        }
        pause(slot_.retry_at());
    }
    slot_.drop();
}

/// Listens on one connection until stop() or until the connection is lost. Throws session_lost, statement_failed.
void catalog_listener::listen() {
    const auto expect_soon = [this] {
        slot_.expect_answer_by(std::chrono::steady_clock::now() + slot_.settings().statement_timeout);
    };
    slot_.connect();
    auto& session = slot_.get();
    expect_soon();
    session.command("listen fencing_catalog");
    while (!ending_) {
        if (slot_.is_outdated()) throw session_lost("PostgreSQL may have been replaced");
        const auto now = std::chrono::steady_clock::now();
        const auto level = readings_.take(catalog_store::change_limit, now);
        if (!level.admitted) {
            pause(now + level.retry_after);
            continue;
        }
        expect_soon();
        catalogs_.reload(session);
        slot_.expect_nothing();
        const auto until = std::chrono::steady_clock::now() + catalog_recheck;
        for (auto left = catalog_recheck; left.count() > 0 && !ending_;
             left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())) {
            if (session.wait_for_notification(wake_, left)) break;
        }
    }
}

void catalog_listener::pause(std::chrono::steady_clock::time_point until) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ending_) return;
    pollfd wake{wake_, POLLIN, 0};
    ::poll(&wake, 1, static_cast<int>(left.count()));
}

}  // namespace fencegate::pg
