package fencegate.client;

import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * One operation of a guarded write on an exposed table or function. Instances are immutable;
 * each method returns a changed copy.
 *
 * <p>Values are String, Boolean, null, numbers (those of double are exact in no database: use BigDecimal),
 * and Map and Collection of these.
 */
public final class Operation {
    private final Map<String, Object> members;

    private Operation(Map<String, Object> members) {
        this.members = members;
    }

    /**
     * Changes rows. Needs {@link #where}.
     *
     * @param table the exposed name
     * @return the operation
     */
    public static Operation update(String table) {
        return new Operation(Map.of("update", table));
    }

    /**
     * Adds a row.
     *
     * @param table the exposed name
     * @return the operation
     */
    public static Operation insert(String table) {
        return new Operation(Map.of("insert", table));
    }

    /**
     * Deletes rows. Needs {@link #where}.
     *
     * @param table the exposed name
     * @return the operation
     */
    public static Operation delete(String table) {
        return new Operation(Map.of("delete", table));
    }

    /**
     * Calls a function.
     *
     * @param function the exposed name
     * @return the operation
     */
    public static Operation call(String function) {
        return new Operation(Map.of("call", function));
    }

    /**
     * Adds the condition that a column has this value.
     *
     * @param column its name
     * @param value not null: use the operator {@code is}
     * @return the changed operation
     * @throws IllegalArgumentException if the column has one with {@code eq} already
     */
    public Operation where(String column, Object value) {
        return where(column, "eq", value);
    }

    /**
     * Adds a condition. Several conditions for one column all have to hold; each has an operator of its own.
     *
     * @param column its name
     * @param operator {@code eq}, {@code neq}, {@code lt}, {@code lte}, {@code gt},
     *     {@code gte}, {@code in} or {@code is}
     * @param value what the operator compares with
     * @return the changed operation
     * @throws IllegalArgumentException if the column has a condition with this operator already
     */
    public Operation where(String column, String operator, Object value) {
        Map<String, Object> conditions = new LinkedHashMap<>();
        if (members.get("where") instanceof Map<?, ?> all && all.get(column) instanceof Map<?, ?> earlier)
            earlier.forEach((name, compared) -> conditions.put((String) name, compared));
        if (conditions.containsKey(operator)) throw new IllegalArgumentException("The column " + column
                + " has a condition with " + operator + " already.");
        conditions.put(operator, listed(value));
        return with("where", column, conditions);
    }

    /**
     * Adds a number to a column, in the database.
     *
     * @param column its name
     * @param number may be negative
     * @return the changed operation
     */
    public Operation add(String column, Number number) {
        return with("add", column, number);
    }

    /**
     * Assigns a value to a column of an update.
     *
     * @param column its name
     * @param value may be null
     * @return the changed operation
     */
    public Operation set(String column, Object value) {
        return with("set", column, value);
    }

    /**
     * Gives a column of an inserted row its value.
     *
     * @param column its name
     * @param value may be null
     * @return the changed operation
     */
    public Operation value(String column, Object value) {
        return with("values", column, value);
    }

    /**
     * Gives an argument of a function its value.
     *
     * @param name the name of the argument
     * @param value may be null
     * @return the changed operation
     */
    public Operation argument(String name, Object value) {
        return with("args", name, value);
    }

    /**
     * Undoes the whole write unless the operation affects this number of rows.
     *
     * @param rows zero or more
     * @return the changed operation
     */
    public Operation expectRows(int rows) {
        Map<String, Object> changed = new LinkedHashMap<>(members);
        changed.put("expect_rows", rows);
        return new Operation(changed);
    }

    Map<String, Object> members() {
        return members;
    }

    /** Returns an array as a list. */
    private static Object listed(Object value) {
        return value instanceof Object[] array ? Collections.unmodifiableList(Arrays.asList(array)) : value;
    }

    private Operation with(String group, String name, Object value) {
        Map<String, Object> inner = new LinkedHashMap<>();
        if (members.get(group) instanceof Map<?, ?> earlier)
            earlier.forEach((key, given) -> inner.put((String) key, given));
        inner.put(name, listed(value));
        Map<String, Object> changed = new LinkedHashMap<>(members);
        changed.put(group, inner);
        return new Operation(changed);
    }
}
