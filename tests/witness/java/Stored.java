import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.paimon.PagedList;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.function.Function;
import org.apache.paimon.function.FunctionChange;
import org.apache.paimon.function.FunctionImpl;
import org.apache.paimon.rest.requests.CreateFunctionRequest;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.utils.JsonSerdeUtil;
import org.apache.paimon.view.View;
import org.apache.paimon.view.ViewChange;
import org.apache.paimon.view.ViewImpl;
import org.apache.paimon.view.ViewSchema;

/** Views and functions of a catalog, as the JSON that requests have. */
final class Stored {

    private Stored() {}

    static Object view(JsonNode request, Catalog catalog) throws Exception {
        Identifier name = Identifier.fromString(request.get("table").textValue());
        JsonNode given = request.get("given");
        switch (request.get("call").textValue()) {
            case "create":
                ViewSchema schema = JsonSerdeUtil.fromJson(given.toString(), ViewSchema.class);
                View made =
                        new ViewImpl(
                                name,
                                schema.fields(),
                                schema.query(),
                                schema.dialects(),
                                schema.comment(),
                                schema.options());
                catalog.createView(name, made, false);
                return null;
            case "alter":
                List<ViewChange> changes = new ArrayList<>();
                for (JsonNode each : given) {
                    changes.add(JsonSerdeUtil.fromJson(each.toString(), ViewChange.class));
                }
                catalog.alterView(name, changes, false);
                return null;
            case "rename":
                catalog.renameView(name, Identifier.fromString(given.textValue()), false);
                return null;
            case "drop":
                catalog.dropView(name, false);
                return null;
            case "list":
                PagedList<String> first = catalog.listViewsPaged(name.getDatabaseName(), 1, null, null);
                return Map.of(
                        "names", catalog.listViews(name.getDatabaseName()),
                        "first", first.getElements(),
                        "details", catalog.listViewDetailsPaged(name.getDatabaseName(), null, null, null)
                                .getElements().stream().map(View::fullName).collect(Collectors.toList()),
                        "everywhere", catalog.listViewsPagedGlobally(null, null, null, null)
                                .getElements().stream().map(Identifier::getFullName).collect(Collectors.toList()));
            default:
                View view = catalog.getView(name);
                return JsonSerdeUtil.toJson(
                        new ViewSchema(
                                view.rowType().getFields(),
                                view.query(),
                                view.dialects(),
                                view.comment().orElse(null),
                                view.options()));
        }
    }

    static Object function(JsonNode request, Catalog catalog) throws Exception {
        Identifier name = Identifier.fromString(request.get("table").textValue());
        JsonNode given = request.get("given");
        switch (request.get("call").textValue()) {
            case "create":
                CreateFunctionRequest made = JsonSerdeUtil.fromJson(given.toString(), CreateFunctionRequest.class);
                catalog.createFunction(
                        name,
                        new FunctionImpl(
                                name,
                                made.inputParams(),
                                made.returnParams(),
                                made.isDeterministic(),
                                made.definitions(),
                                made.comment(),
                                made.options()),
                        false);
                return null;
            case "alter":
                List<FunctionChange> changes = new ArrayList<>();
                for (JsonNode each : given) {
                    changes.add(JsonSerdeUtil.fromJson(each.toString(), FunctionChange.class));
                }
                catalog.alterFunction(name, changes, false);
                return null;
            case "drop":
                catalog.dropFunction(name, false);
                return null;
            case "list":
                return catalog.listFunctions(name.getDatabaseName());
            default:
                Function found = catalog.getFunction(name);
                return JsonSerdeUtil.toJson(new CreateFunctionRequest(found));
        }
    }
}
