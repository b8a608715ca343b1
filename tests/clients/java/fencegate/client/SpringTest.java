package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import javax.sql.DataSource;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;
import org.springframework.aop.framework.ProxyFactory;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.annotation.AnnotationTransactionAttributeSource;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.interceptor.TransactionInterceptor;

/** A method with Spring's annotation Transactional that writes under a lease. */
public final class SpringTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private final DataSource database = new DriverManagerDataSource(Rig.property("jdbc"));
    private final String sku = Rig.sku();

    /** A service as people write one. */
    interface Shop {
        void sell(Lease lease, boolean fails) throws SQLException;
    }

    private final class ShopInDatabase implements Shop {
        @Override
        @Transactional(rollbackFor = SQLException.class)
        public void sell(Lease lease, boolean fails) throws SQLException {
            Fence.enter(DataSourceUtils.getConnection(database), lease);
            new JdbcTemplate(database).update("update inventory set stock = stock - 1 where sku = ?", sku);
            if (fails) throw new IllegalStateException("of the test");
        }
    }

    private Shop shop() {
        ProxyFactory proxy = new ProxyFactory(new ShopInDatabase());
        proxy.addAdvice(new TransactionInterceptor(new DataSourceTransactionManager(database),
                new AnnotationTransactionAttributeSource()));
        return (Shop) proxy.getProxy();
    }

    @Test
    public void transactional_method_writes_under_its_lease() throws Exception {
        Shop shop = shop();
        try (Lease lease = Rig.worker().acquire("inventory/" + sku, Rig.ttl(10_000))) {
            shop.sell(lease, false);
            assertEquals(9, Rig.stock(sku));
            assertThrows(IllegalStateException.class, () -> shop.sell(lease, true));
            assertEquals("rolled back", 9, Rig.stock(sku));
            try (Connection newer = Rig.database(); Statement statement = newer.createStatement()) {
                statement.execute("select fencing.enter('inventory/" + sku + "', " + (lease.fencingToken() + 1) + ")");
            }
            assertThrows(StaleFencingTokenException.class, () -> shop.sell(lease, false));
            assertEquals("refused", 9, Rig.stock(sku));
        }
    }
}
