package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** Problems, their exceptions, and what the client refuses itself. */
public final class ProblemTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    @Test
    public void slugs_are_those_of_openapi() throws Exception {
        Members schemas = Members.of(Json.read(Files.readAllBytes(Path.of(Rig.property("openapi")))));
        for (String name : List.of("components", "schemas", "problem", "properties", "type"))
            schemas = Members.of(schemas.values().get(name));
        List<String> served = schemas.texts("enum");
        assertEquals(served.stream().sorted().toList(),
                Arrays.stream(Slug.values()).map(slug -> "/problems/" + slug.text()).sorted().toList());
    }

    @Test
    public void problem_of_later_version_is_read() {
        Problem problem = Problem.of(418, Members.of(Map.of("type", "/problems/new-one", "title", "t", "detail", "d",
                    "request_id", "r")), Optional.empty());
        FencegateException exception = FencegateException.of(problem);
        assertEquals(Optional.empty(), exception.slug());
        assertEquals(418, exception.problem().orElseThrow().status());
    }

    @Test
    public void problem_of_faulty_request_names_field() throws Exception {
        FencegateException refused =
                assertThrows(FencegateException.class, () -> Rig.worker().acquire("a//b", Rig.ttl(1)));
        assertEquals(Optional.of(Slug.INVALID_REQUEST), refused.slug());
        assertEquals(List.of("/resource", "/ttl_ms"),
                refused.problem().orElseThrow().faults().stream().map(Problem.Fault::pointer).sorted().toList());
    }

    @Test
    public void credential_that_is_wrong_is_refused_and_not_shown() {
        FencegateClient client = FencegateClient.builder(Rig.GATEWAYS.get(0)).credential("wrong-key").build();
        FencegateException refused =
                assertThrows(FencegateException.class, () -> client.acquire(Rig.resource(), LeaseOptions.defaults()));
        assertEquals(Optional.of(Slug.UNAUTHENTICATED), refused.slug());
        IllegalArgumentException fault = assertThrows(IllegalArgumentException.class,
                () -> FencegateClient.builder(Rig.GATEWAYS.get(0)).credential("secret\n"));
        assertFalse(fault.getMessage().contains("secret"));
    }

    @Test
    public void settings_out_of_bounds_are_refused() {
        for (String uri : List.of("localhost:8080", "ftp://x", "http://u:p@x", "http://x?a=b", "http:///x"))
            assertThrows(uri, IllegalArgumentException.class, () -> FencegateClient.builder(URI.create(uri)));
        assertThrows(IllegalArgumentException.class, () -> Rig.client("worker").retryFor(Duration.ZERO));
        for (int cell : new int[] {-1, 65_536})
            assertEquals("cell has to be from 0 to 65535",
                    assertThrows(IllegalArgumentException.class, () -> Rig.client("worker").cell(cell)).getMessage());
        assertThrows(IllegalArgumentException.class, () -> Rig.client("worker").answerBytesMax(0));
        assertThrows(IllegalArgumentException.class, () -> LeaseOptions.defaults().ttl(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> LeaseOptions.defaults().waitTime(Duration.ofDays(366)));
        assertThrows(IllegalArgumentException.class, () -> Write.oneShot(List.of("a"), LeaseOptions.defaults())
                .idempotencyKey("two words"));
    }

    @Test
    public void answer_above_size_limit_is_refused_at_once() {
        FencegateClient client = Rig.client("worker").answerBytesMax(50).build();
        FencegateException refused = assertThrows(FencegateException.class, () -> client.history(Map.of()).count());
        assertTrue(refused.getMessage(), refused.getMessage().contains("more than 50 bytes"));
    }

    @Test
    public void gateway_that_does_not_exist_is_unavailable() {
        // Long enough for the first connection of a JVM on a busy machine.
        FencegateClient client = FencegateClient.builder(URI.create("http://127.0.0.1:1"))
                .retryFor(Duration.ofSeconds(4)).build();
        UnavailableException failed =
                assertThrows(UnavailableException.class, () -> client.acquire(Rig.resource(), LeaseOptions.defaults()));
        assertFalse("nothing was sent", failed instanceof OutcomeUnknownException);
    }
}
