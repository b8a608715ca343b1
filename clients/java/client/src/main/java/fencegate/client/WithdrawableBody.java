package fencegate.client;

import java.io.IOException;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.ByteBuffer;
import java.util.concurrent.Flow;

/** The body of a request, which can be withdrawn until a connection asks for it: then it is never sent. */
final class WithdrawableBody implements BodyPublisher {
    private final BodyPublisher bytes;
    private boolean asked;
    private boolean withdrawn;

    WithdrawableBody(byte[] bytes) {
        this.bytes = BodyPublishers.ofByteArray(bytes);
    }

    /** Returns whether nothing of the body was sent, nor will be. */
    synchronized boolean withdraw() {
        withdrawn |= !asked;
        return withdrawn;
    }

    private synchronized boolean ask() {
        asked |= !withdrawn;
        return asked;
    }

    @Override
    public long contentLength() {
        return bytes.contentLength();
    }

    @Override
    public void subscribe(Flow.Subscriber<? super ByteBuffer> subscriber) {
        if (ask()) {
            bytes.subscribe(subscriber);
            return;
        }
        subscriber.onSubscribe(new Flow.Subscription() {
            @Override
            public void request(long count) {}

            @Override
            public void cancel() {}
        });
        subscriber.onError(new IOException("the call has ended"));
    }
}
