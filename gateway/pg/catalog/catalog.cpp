#include <gateway/pg/catalog/catalog.hpp>

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

}  // namespace fencegate::pg
