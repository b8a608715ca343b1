package fencegate.client;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.Test;

/** The JSON of the client: exact and strict. */
public final class JsonTest {
    private static String written(Object value) {
        return new String(Json.write(value), StandardCharsets.UTF_8);
    }

    @Test
    public void json_integers_keep_all_digits() throws Exception {
        assertEquals(9007199254740991L, Json.read("9007199254740991"));
        assertEquals(Long.MAX_VALUE, Json.read("9223372036854775807"));
        assertEquals(Long.MIN_VALUE, Json.read("-9223372036854775808"));
        assertEquals(new BigDecimal("9223372036854775808"), Json.read("9223372036854775808"));
        assertEquals(new BigDecimal("0.10"), Json.read("0.10"));
        assertEquals("0.10", written(Json.read("0.10")));
        assertEquals(new BigDecimal("1E+3"), Json.read("1e3"));
        assertEquals("1E+3", written(Json.read("1e3")));
    }

    @Test
    public void json_values_are_the_same_after_writing() throws Exception {
        String text = "{\"a\":[1,-2.5,true,false,null,{},[]],\"b\":{\"c\":\"\\\"\\\\ü€😀\\u000a\"}}";
        assertEquals(text, written(Json.read(text)));
        assertEquals(Map.of("x", "\b\f\n\r\t/é"), Json.read(" {\"x\" : \"\\b\\f\\n\\r\\t\\/\\u00e9\"}\r\n"));
        assertEquals("[1,2,3,4,0.5]", written(Arrays.asList((byte) 1, (short) 2, 3, 4L, 0.5)));
    }

    @Test
    public void json_malformed_text_is_refused() {
        for (String text : List.of("", " ", "{", "[1,]", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "01", "1.", ".5", "-",
                "+1", "1e", "tru", "nul", "NaN", "\"", "\"\\x\"", "\"\\u12g4\"",
                "\"\t\"", "1 2", "[1}", "{\"a\":1,\"a\" 2}", "'a'", "[1", "\u00a01", "1e99999999999")) {
            assertThrows(text, Json.SyntaxException.class, () -> Json.read(text));
        }
        assertThrows(Json.SyntaxException.class, () -> Json.read(new byte[] {'"', (byte) 0xff, '"'}));
    }

    @Test
    public void json_last_of_members_with_same_name_counts() throws Exception {
        assertEquals("{\"a\":2,\"b\":3}", written(Json.read("{\"a\":1,\"b\":3,\"a\":2}")));
    }

    @Test
    public void json_depth_and_length_of_numbers_are_limited() throws Exception {
        Json.read("[".repeat(128) + "]".repeat(128));
        assertThrows(Json.SyntaxException.class, () -> Json.read("[".repeat(130) + "]".repeat(130)));
        assertThrows(Json.SyntaxException.class, () -> Json.read("[".repeat(1_000_000)));
        assertThrows(Json.SyntaxException.class, () -> Json.read("1".repeat(150_001)));
        Object deep = 1;
        for (int level = 0; level < 200; level++) deep = List.of(deep);
        Object value = deep;
        assertThrows(IllegalArgumentException.class, () -> Json.write(value));
    }

    @Test
    public void json_values_without_form_are_refused() {
        for (Object value : Arrays.asList(Double.NaN, Float.POSITIVE_INFINITY, new Object(), Map.of(1, 2), "\ud800",
                List.of('c'))) {
            assertThrows(String.valueOf(value), IllegalArgumentException.class, () -> Json.write(value));
        }
        assertArrayEquals("\"a\\u0001\"".getBytes(StandardCharsets.UTF_8), Json.write("a\u0001"));
    }
}
