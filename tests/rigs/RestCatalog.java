/** A REST catalog by Iceberg's own code, on 127.0.0.1. Its tables' metadata locations are in PostgreSQL. */
import java.util.Map;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

class RestCatalog {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> environment = System.getenv();
    JdbcCatalog tables = new JdbcCatalog();
    tables.setConf(new org.apache.hadoop.conf.Configuration());
    tables.initialize(
        environment.get("CATALOG_NAME"),
        Map.of(
            "uri", environment.get("CATALOG_URI"),
            "jdbc.user", environment.get("CATALOG_USER"),
            "jdbc.password", environment.get("CATALOG_PASSWORD"),
            "jdbc.schema-version", "V1",
            "warehouse", environment.get("CATALOG_WAREHOUSE")));
    Server server = new Server(new QueuedThreadPool(16));
    ServerConnector connector = new ServerConnector(server, 1, 1);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(environment.get("CATALOG_PORT")));
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(tables))), "/*");
    server.setHandler(context);
    server.start();
    server.join();
  }
}
